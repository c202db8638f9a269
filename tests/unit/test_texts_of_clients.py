"""What clients make of texts: the bytes of a command, whatever their encoding."""

from __future__ import annotations

import pytest
import redis

from redis_lock_decorators._io.client_state import as_sent
from redis_lock_decorators._io.transport.encoding import packed, words_of
from redis_lock_decorators.lock import Lock

ENCODINGS = ("utf-8", "latin-1", "utf-16")


def sent(client, text):
    """What a connection of the client writes, which is never opened."""
    pool = client.connection_pool
    connection = pool.connection_class(**pool.connection_kwargs)
    return words_of(b"".join(connection.pack_command("GET", text)))[-1]


@pytest.mark.parametrize("words", [(b"GET",), (b"SET", b"a\r\nb", b""), (b"", "ü".encode())])
def test_the_words_of_a_command_are_found_again(words):
    assert words_of(packed(words)) == list(words)


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("text", ["plain", "ü"])
def test_a_text_is_what_the_client_would_send(encoding, text):
    client = redis.Redis(encoding=encoding)

    assert as_sent(client, text) == sent(client, text)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_lock_in_place_of_redis_pys_has_its_key(encoding):
    client = redis.Redis(encoding=encoding)

    lock = client.lock("ü", timeout=3, lock_class=Lock)

    assert lock._key == sent(client, "ü")
