"""The script that renews many leases, on a real server."""

from __future__ import annotations

import pytest
from redis.exceptions import ResponseError

from redis_lock_decorators import _lua


def renewed(client, *leases):
    """Renew keys for a minute, each for an identifier."""
    details = [detail for _, identifier in leases for detail in (identifier, 60_000)]
    keys = [key for key, _ in leases]
    return client.eval(_lua.script("renew").text, len(keys), *keys, "request", 7, *details)


@pytest.fixture
def client(direct, name):
    direct.set(f"{name}:mine", "me", px=20_000)
    direct.set(f"{name}:also mine", "me", px=20_000)
    direct.rpush(f"{name}:list", "other data")
    yield direct
    direct.delete(*direct.keys(f"{name}*"))


def test_key_of_another_type_is_not_renewed_but_the_others_are(client, name):
    keys = [f"{name}:mine", f"{name}:list", f"{name}:also mine"]

    reply = renewed(client, *[(key, "me") for key in keys])

    assert reply == [b"request:7", 1, 0]
    assert client.pttl(keys[0]) > 50_000
    assert client.pttl(keys[2]) > 50_000
    assert client.lrange(keys[1], 0, -1) == [b"other data"]


def test_forbidden_key_is_an_error_and_no_loss(client, server, name):
    client.execute_command("ACL", "SETUSER", "renewer", "on", "nopass", "+@all", f"~{name}:m*")
    renewer = server.client(username="renewer")
    try:
        with pytest.raises(ResponseError):
            renewed(renewer, (f"{name}:mine", "me"), (f"{name}:also mine", "me"))
    finally:
        renewer.close()
        client.execute_command("ACL", "DELUSER", "renewer")


def test_key_may_be_renewed_for_two_identifiers(client, name):
    key = f"{name}:mine"

    reply = renewed(client, (key, "an earlier holder"), (key, "me"))

    assert reply == [b"request:7", 0, b"me"]
    assert client.pttl(key) > 50_000
