"""The selector of background loops where a greenlet library has replaced the default one."""

from __future__ import annotations

import asyncio
import select
import selectors
import socket

import pytest

from redis_lock_decorators._io.background import native_selector
from redis_lock_decorators._io.background.loop_thread import WorkerLoop
from redis_lock_decorators._io.background.native_selector import PollSelector

pytestmark = pytest.mark.skipif(not hasattr(select, "poll"), reason="no poll() here")
READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE


@pytest.fixture
def replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the module's functions, as gevent does."""

    def green(*arguments: object) -> object:
        raise AssertionError("a background loop used a replaced function")

    monkeypatch.setattr(selectors, "DefaultSelector", green)
    for name in ("select", "poll"):
        monkeypatch.setattr(select, name, green)


@pytest.mark.usefixtures("replaced")
def test_background_loop_does_not_use_replaced_selectors() -> None:
    loop = WorkerLoop()
    try:
        loop.call_soon_threadsafe(loop.call_later, 0.001, loop.stop)
        loop.run_forever()
        assert loop.run_until_complete(_exchange()) == b"ready"
    finally:
        loop.close()


async def _exchange() -> bytes:
    loop, (ours, theirs) = asyncio.get_running_loop(), socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        reading = loop.create_task(loop.sock_recv(ours, 10))
        await asyncio.sleep(0)
        theirs.sendall(b"ready")
        return await reading


def test_usual_selector_is_used_where_nothing_is_replaced() -> None:
    assert native_selector.native_selector() is None


def test_events_are_those_that_were_asked_for() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs, PollSelector(select.poll()) as selector:
        key = selector.register(ours, READ, "data")
        assert selector.select(0) == []
        theirs.send(b"1")
        assert selector.select(0) == [(key, READ)]

        both = selector.modify(ours, READ | WRITE, "both")
        assert selector.select(0) == [(both, READ | WRITE)]
        assert selector.get_key(ours) is both
        assert dict(selector.get_map()) == {ours: both}

        selector.unregister(ours)
        assert selector.select(0) == []


def test_closed_peer_is_reported() -> None:
    ours, theirs = socket.socketpair()
    with ours, PollSelector(select.poll()) as selector:
        key = selector.register(ours, READ)
        theirs.close()

        assert selector.select(0) == [(key, READ)]


def test_closed_file_can_be_unregistered() -> None:
    ours, theirs = socket.socketpair()
    with theirs, PollSelector(select.poll()) as selector:
        key = selector.register(ours, READ)
        ours.close()

        assert selector.unregister(ours) is key


def test_wrong_registrations_are_refused() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs, PollSelector(select.poll()) as selector:
        with pytest.raises(KeyError):
            selector.unregister(ours)
        selector.register(ours.fileno(), READ)
        with pytest.raises(KeyError):
            selector.register(ours, READ)
