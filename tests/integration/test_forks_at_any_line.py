"""A signal handler forks in the middle of a request, and the copy of the request goes on.

The copy must neither send its parent's request nor read the reply, so the parent's outcome is the
same as without it.
"""

from __future__ import annotations

import asyncio
import os
import select
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
import redis

if int(redis.__version__.partition(".")[0]) < 4:
    pytest.skip("redis-py 3.5 has no asyncio", allow_module_level=True)

import redis.asyncio

from redis_lock_decorators import RedisLock
from redis_lock_decorators import asyncio as lock_asyncio
from redis_lock_decorators._flow import requests

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork"),
    pytest.mark.filterwarnings("ignore:This process:DeprecationWarning"),  # of forks with threads
]

#: The files at whose lines a process forks, once a request has begun.
FILES = (
    "_flow/requests.py",
    "_io/transport/",
    "redis/connection.py",
    "redis/asyncio/connection.py",
)
#: Seconds after which a child counts as stuck.
STUCK = 20
#: A fork is tried at one of so many lines, at other ones in each test.
EACH = 7


class ForkAtLine:
    """A trace function that forks at a line; the parent waits until the child has ended.

    Attributes:
        left: lines until the fork; none is due if it remains above 0.
        outcome: how the request has ended in the child.
    """

    def __init__(self, lines: int) -> None:
        self.left = lines
        self.outcome: str | None = None
        self._begun = False
        self._writing: int | None = None

    def __call__(self, frame: FrameType, event: str, _: Any) -> Any:
        self._begun = self._begun or frame.f_code is requests.ask.__code__
        is_watched = self._begun and any(part in frame.f_code.co_filename for part in FILES)
        return self._line if is_watched else None

    def _line(self, frame: FrameType, event: str, _: Any) -> Any:
        if event == "line":
            self.left -= 1
            if not self.left:
                sys.settrace(None)
                self._fork()
        return self._line

    def _fork(self) -> None:
        reading, self._writing = os.pipe()
        child = os.fork()
        if child:
            os.close(self._writing)
            self._writing = None
            self.outcome = "stuck"
            if select.select([reading], [], [], STUCK)[0]:
                self.outcome = os.read(reading, 4096).decode()
            os.close(reading)
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)

    def ended(self, outcome: object) -> None:
        """Note the outcome, if this is the child, which ends here."""
        if self._writing is not None:
            os.write(self._writing, repr(outcome).encode())
            os._exit(0)


def run_with_fork(fork: ForkAtLine, work: Callable[[], Any]) -> Any:
    """The result of some work or its exception, while a fork is made."""
    sys.settrace(fork)
    try:
        found = work()
    except BaseException as error:
        found = error
    finally:
        sys.settrace(None)
    fork.ended(found)
    return found


@pytest.fixture(params=["threads", "asyncio"])
def world(request: pytest.FixtureRequest, server: Any) -> Any:
    """A class of locks, its client, and what runs its methods."""
    if request.param == "threads":
        yield RedisLock, server.client(), lambda result: result
        return
    loop = asyncio.new_event_loop()
    client = redis.asyncio.Redis(host=server.host, port=server.port)
    yield lock_asyncio.RedisLock, client, loop.run_until_complete
    loop.run_until_complete(client.aclose() if hasattr(client, "aclose") else client.close())
    loop.close()


@pytest.mark.parametrize("is_cold", [False, True], ids=["warm", "cold"])
@pytest.mark.parametrize("verb", ["acquire", "release", "extend"])
@pytest.mark.skipif(sys.gettrace() is not None, reason="another trace function is in use")
def test_copy_of_a_request_does_nothing(world, server, name, verb, is_cold):
    kind, client, run = world
    direct, lines, outcomes = server.client(), 0, []
    lock = kind(name, client=client, auto_renew=False, acquire_time=3)
    while True:
        lines += EACH
        lease = None if verb == "acquire" else run(lock.acquire())
        if is_cold:
            run(client.connection_pool.disconnect())
        fork = ForkAtLine(lines)

        work = getattr(lock if lease is None else lease, verb)
        found = run_with_fork(fork, lambda work=work: run(work()))

        if fork.left > 0:
            break
        outcomes.append(fork.outcome)
        assert not isinstance(found, BaseException), f"line {lines}: {found!r}"
        assert direct.exists(f"sys:lock:{name}") == (verb != "release")
        if verb != "release":
            run((lease or found).release())
        assert not direct.keys(f"*{name}*")
    refused = [one.startswith("LockNotOwnedError") for one in outcomes]
    # At the last lines the reply has been read, so the request is over in both processes.
    assert all(refused[: len(refused) * 3 // 5]), outcomes
    assert {one for one in outcomes if not one.startswith(("LockNot", "<Lease"))} <= {
        "None",
        "True",
    }
    assert sum(refused) > 5
