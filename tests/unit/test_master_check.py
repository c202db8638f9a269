"""A waiter leaves a replaced master, though that still answers as a master."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import redis
from support.background_loops import on_a_loop
from support.manual_loop import time_passes, until

from redis_lock_decorators._io.transport import master_check, private_connection
from redis_lock_decorators._io.transport.greenlets import GreenletSubscription
from redis_lock_decorators._io.transport.master_check import INTERVAL, MasterCheck
from redis_lock_decorators._io.transport.subscriptions import (
    TaskSubscription,
    ThreadQuestions,
    ThreadSubscription,
    _ask_in_task,
    pool_check,
)

OLD, NEW = ("127.0.0.1", 1), ("127.0.0.1", 2)


class Pool:
    """A Sentinel pool of a blocking client."""

    is_master = True

    def __init__(self) -> None:
        self.connection_kwargs: dict[str, Any] = {}
        self.master_address = self.found = OLD
        self.error: Exception | None = None
        self.questions = 0

    def get_master_address(self) -> Any:
        self.questions += 1
        if self.error is not None:
            raise self.error
        self.master_address = self.found
        return self.found

    def disconnect(self, inuse_connections: bool = True) -> None:
        """Called by a client when it is closed."""

    def reset(self) -> None:
        """Called by some programs to reconnect."""


class TaskPool(Pool):
    async def get_master_address(self) -> Any:
        return super().get_master_address()


class Connection:
    """A connection to the old master."""

    host, port = OLD

    def __init__(self) -> None:
        self._sock, self.other_end = socket.socketpair()
        self._parser = SimpleNamespace(parse_error=redis.ResponseError)
        self._writer = SimpleNamespace(transport=SimpleNamespace(abort=lambda: None))

    def disconnect(self) -> None:
        self._sock.close()

    def send_command(self, *command: Any) -> None:
        """Send a command, like a blocking connection."""

    async def send_packed_command(self, data: Any, check_health: bool) -> None:
        """Send a command, like an asyncio connection."""


class LoopThread:
    """The part of a worker of greenlets that a subscription uses."""

    unlocked = staticmethod(contextlib.nullcontext)


async def ask(pool: Any) -> None:
    pool.get_master_address()


def task_subscription(client: Any, connection: Any) -> Any:
    return TaskSubscription(connection, pool_check(client), MasterCheck(client, _ask_in_task))


def thread_subscription(client: Any, connection: Any) -> Any:
    return ThreadSubscription(
        connection, pool_check(client), MasterCheck(client, ThreadQuestions().ask)
    )


def greenlet_subscription(client: Any, connection: Any) -> Any:
    found = GreenletSubscription(
        connection, LoopThread(), pool_check(client), MasterCheck(client, ask)
    )
    found._master_check = MasterCheck(client, ask)  # as with sockets that greenlets patched
    return found


def is_open(subscription: Any) -> bool:
    if isinstance(subscription, ThreadSubscription):
        return not subscription._end.done()
    return not subscription._is_closed


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Any:
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(master_check, "monotonic", lambda: clock.now)
    return clock


@pytest.mark.parametrize(
    ("new", "kind"),
    [
        (task_subscription, TaskPool),
        (thread_subscription, Pool),
        (greenlet_subscription, Pool),
    ],
)
def test_subscription_to_a_replaced_master_ends(
    clock: Any, new: Callable[[Any, Any], Any], kind: type[Pool]
) -> None:
    async def test() -> None:
        pool, connection = kind(), Connection()
        subscription = new(SimpleNamespace(connection_pool=pool), connection)
        pool.found = NEW
        await subscription.send("PING")
        assert pool.questions == 0
        assert is_open(subscription)

        clock.now += INTERVAL
        await subscription.send("PING")

        assert pool.questions == 1
        assert not is_open(subscription)
        connection.other_end.close()
        connection.disconnect()

    asyncio.run(asyncio.wait_for(test(), 10))


@pytest.mark.parametrize("error", [None, redis.ConnectionError("no Sentinel answers")])
def test_subscription_remains_while_no_other_master_is_known(
    clock: Any, error: Exception | None
) -> None:
    async def test() -> None:
        pool, connection = TaskPool(), Connection()
        pool.error = error
        subscription = task_subscription(SimpleNamespace(connection_pool=pool), connection)
        for _ in range(5):
            clock.now += INTERVAL / 2 + 0.1
            await subscription.send("PING")

        assert pool.questions == 2
        assert is_open(subscription)
        connection.other_end.close()
        connection.disconnect()

    asyncio.run(asyncio.wait_for(test(), 10))


def test_next_question_waits_for_the_answer_to_the_last(clock: Any) -> None:
    async def test() -> None:
        asked, answered = [], asyncio.Event()

        async def ask_slowly(pool: Any) -> None:
            asked.append(pool)
            await answered.wait()

        check = MasterCheck(SimpleNamespace(connection_pool=Pool()), ask_slowly)
        clock.now += INTERVAL
        first = asyncio.ensure_future(check.ask_if_due())
        await asyncio.sleep(0)
        clock.now += 10 * INTERVAL
        await check.ask_if_due()
        assert len(asked) == 1

        answered.set()
        await first
        await check.ask_if_due()
        assert len(asked) == 1
        clock.now += INTERVAL
        await check.ask_if_due()
        assert len(asked) == 2

    asyncio.run(asyncio.wait_for(test(), 10))


@pytest.mark.parametrize(
    "pool",
    [None, SimpleNamespace(), SimpleNamespace(is_master=False, get_master_address=None)],
    ids=["cluster", "plain", "replicas"],
)
def test_other_pools_are_not_asked(clock: Any, pool: Any) -> None:
    async def fail(_: Any) -> None:
        pytest.fail("only a Sentinel pool that leads to the master can be asked")

    check = MasterCheck(SimpleNamespace(connection_pool=pool), fail)
    clock.now += INTERVAL

    asyncio.run(check.ask_if_due())


def test_error_that_is_none_of_the_client_is_raised(clock: Any) -> None:
    async def fail(_: Any) -> None:
        raise ZeroDivisionError

    check = MasterCheck(SimpleNamespace(connection_pool=Pool()), fail)
    clock.now += INTERVAL

    with pytest.raises(ZeroDivisionError):
        asyncio.run(check.ask_if_due())


def test_sentinel_that_hangs_prevents_no_later_question() -> None:
    async def test() -> None:
        pool, may_end, ended = Pool(), threading.Event(), asyncio.Event()
        loop, questions = asyncio.get_running_loop(), ThreadQuestions()

        def hang() -> None:
            pool.questions += 1
            may_end.wait(30)
            loop.call_soon_threadsafe(ended.set)

        pool.get_master_address = hang  # type: ignore[method-assign]
        for _ in range(ThreadQuestions.MOST + 2):
            asking = asyncio.ensure_future(questions.ask(pool))
            await asyncio.sleep(0)
            await time_passes(private_connection.PATIENCE + 0.1)
            await asking
        await until(lambda: pool.questions == ThreadQuestions.MOST)

        may_end.set()
        await ended.wait()
        del pool.get_master_address  # type: ignore[method-assign]
        await until(lambda: not questions._under_way)
        await questions.ask(pool)
        assert pool.questions == ThreadQuestions.MOST + 1

    on_a_loop(test)()
