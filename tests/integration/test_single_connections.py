"""Locks do not use the connection of a client that has only one for all its commands."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from support.fronts import do, wrap
from support.leftovers import BLOCKING, TIDY_FRONTS

from redis_lock_decorators import ConfigurationError

FRONTS = TIDY_FRONTS


class OwnLists:
    """Commands of a client class of the program, which overrides ``execute_command``."""

    def execute_command(self, *words: Any, **options: Any) -> Any:
        return super().execute_command(*words, **options)  # type: ignore[misc]


def single(front: Any, server: Any, kind: str) -> Any:
    client = front.client(server, single_connection_client=True)
    if kind == "wrapped":
        wrap(client)
    if kind == "overridden":
        client.__class__ = type("Own", (OwnLists, type(client)), {})
    return client


KINDS = pytest.mark.parametrize("kind", ["plain", "wrapped", "overridden"])


@KINDS
async def test_lease_is_renewed_while_the_program_waits_for_a_reply(front, server, name, kind):
    client = single(front, server, kind)
    async with front.held(front.package.RedisLock(name, client=client, expire=0.8)) as lease:
        await do(client.blpop([f"{name}:nothing"], 1.5))

        assert not lease.lost


@KINDS
async def test_locks_send_nothing_over_the_connection_of_the_program(front, server, name, kind):
    client, senders = single(front, server, kind), []
    await do(client.ping())
    connection = client.connection
    send = connection.send_packed_command

    def recorded(*words: Any, **options: Any) -> Any:
        senders.append(threading.current_thread().name)
        return send(*words, **options)

    connection.send_packed_command = recorded

    async with front.held(front.package.RedisLock(name, client=client, expire=0.3)) as lease:
        await front.sleep(0.7)
        assert not lease.lost
    async with front.held(front.package.RedisLock(name, client=client, release_method="native")):
        pass

    assert senders == []
    await do(client.ping())
    assert len(senders) == 1


def test_single_connection_without_a_pipeline_is_refused(server, name):
    client = BLOCKING.client(server, single_connection_client=True)

    class Wrapper:
        connection_pool, connection = client.connection_pool, client.connection

        def execute_command(self, *words: Any, **options: Any) -> Any:
            return client.execute_command(*words, **options)

    with pytest.raises(ConfigurationError, match="leave out single_connection_client=True"):
        BLOCKING.package.RedisLock(name, client=Wrapper()).acquire()
