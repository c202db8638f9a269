"""``redis-lock break``: release a lock that another process holds."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest
from support.cli import Program, ran, state_of
from support.waiting import until

from redis_lock_decorators import LockLostError, RedisLock
from redis_lock_decorators.inspection import lock_status


@pytest.fixture
def held(direct: Any, name: str) -> Any:
    """A lease of the lock, which the test may break."""
    lease = RedisLock(name, client=direct, acquire_time=0, expire=60).acquire()
    yield lease
    direct.delete(lease.key)


def test_first_waiter_gets_the_lock(server: Any, direct: Any, name: str, held: Any) -> None:
    granted: list[Any] = []
    lock = RedisLock(name, client=server.client(), acquire_time=60)
    thread = threading.Thread(target=lambda: granted.append(lock.acquire()))
    thread.start()
    until(lambda: bool(lock_status(direct, name).waiting))

    done = ran("break", name, "--yes", url=server.url)

    thread.join()
    assert done.out == f"released {name}: {granted[0].identifier[:8]}… has it now\n"
    assert (done.code, done.err) == (0, "")
    with pytest.raises(LockLostError):
        held.release()
    granted[0].release()


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("n\n", 1), ("\n", 1), ("\x03", 1)])
def test_user_is_asked(
    server: Any, direct: Any, name: str, held: Any, answer: str, code: int
) -> None:
    with Program("break", name, url=server.url, width=80) as program:
        program.until_error("Release it? [y/N]: ")
        # Python does not notice a Ctrl-C in the instant before it begins to read.
        until(lambda: state_of(program.process.pid) == "S")
        program.write(answer)
        done = program.done()

    assert done.code == code
    assert lock_status(direct, name).is_held == bool(code)


def test_end_of_the_input_is_no_answer(server: Any, direct: Any, name: str, held: Any) -> None:
    done = ran("break", name, url=server.url)

    assert (done.code, done.out) == (1, "")
    assert f"Lock {name} is held by {held.identifier[:8]}…" in done.err
    assert lock_status(direct, name).is_held


@pytest.mark.parametrize(("shown", "code"), [(None, 0), (8, 0), (7, 1), ("x", 1)])
def test_lock_is_released_by_the_identifier_that_was_shown(
    server: Any, direct: Any, name: str, held: Any, shown: Any, code: int
) -> None:
    given = "abcdefgh…" if shown == "x" else held.identifier[:shown]

    done = ran("break", name, "--yes", "--json", "--identifier", given, url=server.url)

    assert done.code == code
    assert json.loads(done.out)["released"] == (code == 0)
    assert lock_status(direct, name).is_held == bool(code)


def test_lock_whose_value_is_no_text_is_released(server: Any, direct: Any, name: str) -> None:
    direct.set(f"sys:lock:{name}", b"\xff\xfe", px=60_000)

    done = ran("break", name, "--yes", "--identifier", "\udcff\udcfe", url=server.url)

    assert (done.code, done.out, done.err) == (0, f"released {name}: it is free\n", "")


def test_free_lock_is_not_broken(server: Any, name: str) -> None:
    done = ran("break", name, "--yes", url=server.url)

    assert (done.code, done.out, done.err) == (1, "", f"redis-lock: lock {name} is free\n")


def test_lock_that_min_hold_keeps_is_freed(server: Any, direct: Any, name: str) -> None:
    with RedisLock(name, client=direct, min_hold=60):
        pass

    shown = ran("show", name, url=server.url)
    done = ran("break", name, url=server.url, given="y\n")

    assert (shown.code, "holder\tnone: min_hold" in shown.out) == (1, True)
    assert (done.code, done.out) == (0, f"released {name}: it is free\n")
    assert "min_hold keeps it" in done.err
