"""What locks of several libraries do in the same situations.

``python docs/evidence/measure.py NAME [SITUATION …]``
NAME is one of KEYS. Prints one line for each situation, of which NAME.txt is a copy.
docs/concepts/comparison.rst is based on them.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import redis
from redis.exceptions import ConnectionError as Disconnected

from redis_lock_decorators.testing import LocalCluster, LocalServer

#: Seconds: the lease of a lock, and how long work takes that is longer.
EXPIRE, LONG_WORK = 1, 2.5
WAITERS = 10


class Losing(redis.Connection):
    """A connection that breaks once, instead of reading the reply to a command of a lock."""

    armed = False

    def send_packed_command(self, command: Any, check_health: bool = True) -> None:
        super().send_packed_command(command, check_health)
        text = b"".join(command) if isinstance(command, list) else command
        self.is_of_lock = any(verb in text for verb in (b"SET\r", b"EVALSHA", b"EVAL\r"))

    def read_response(self, *args: Any, **kwargs: Any) -> Any:
        reply = super().read_response(*args, **kwargs)
        if Losing.armed and self.is_of_lock:
            Losing.armed = False
            self.disconnect()
            raise Disconnected("the reply was lost")
        return reply


def client_of(server: LocalServer, **options: Any) -> redis.Redis:
    # Without a limit for replies, as BLPOP of python-redis-lock is answered late.
    return redis.Redis(host=server.host, port=server.port, socket_timeout=None, **options)


def redis_py(client: Any, patience: float | None = 20, expire: float = EXPIRE) -> Any:
    return client.lock("name", timeout=expire, blocking_timeout=patience)


def python_redis_lock(
    client: Any, patience: float | None = 20, expire: float = EXPIRE, auto_renewal: bool = False
) -> Any:
    from redis_lock import Lock

    options = {"blocking": bool(patience), "strict": isinstance(client, redis.Redis)}
    return Lock(client, "name", expire=int(expire), auto_renewal=auto_renewal, **options)


def python_redis_lock_renewed(client: Any, **options: Any) -> Any:
    return python_redis_lock(client, auto_renewal=True, **options)


def pottery(client: Any, patience: float | None = 20, expire: float = EXPIRE) -> Any:
    from pottery import Redlock

    options = (
        {"context_manager_timeout": patience} if patience else {"context_manager_blocking": False}
    )
    return Redlock(key="name", masters={client}, auto_release_time=expire, **options)


def this_package(client: Any, patience: float | None = 20, expire: float = EXPIRE) -> Any:
    from redis_lock_decorators import RedisLock

    return RedisLock("name", client=client, acquire_time=patience, expire=expire, fencing=True)


#: The keys of the locks.
KEYS = {
    "redis_py": "name",
    "python_redis_lock": "lock:name",
    "python_redis_lock_renewed": "lock:name",
    "pottery": "redlock:name",
    "this_package": "sys:lock:name",
}
#: What is measured: methods of `Subject`.
SITUATIONS = (
    "renewal", "loss", "order", "newcomers", "requests", "lost_acquire", "lost_release",
    "reentrancy", "fence", "cluster",
)  # fmt: skip


def outcome(action: Callable[[], Any]) -> str:
    """The name of the error that an action raises, else "no error"."""
    try:
        action()
    except Exception as error:  # the subject of the measurement
        return type(error).__name__
    return "no error"


class Subject:
    """A library's lock on a server of its own."""

    def __init__(self, name: str, server: LocalServer) -> None:
        self.make, self.key = globals()[name], KEYS[name]
        self.server, self.admin = server, client_of(server)

    def lock(self, **options: Any) -> Any:
        return self.make(client_of(self.server), **options)

    def renewal(self) -> str:
        """Work longer than the lease."""
        held = []

        def work() -> None:
            with self.lock():
                time.sleep(LONG_WORK)
                held.append(self.admin.exists(self.key))

        end = outcome(work)
        return f"{'held' if held == [1] else 'not held'} to the end of long work; {end}"

    def loss(self) -> str:
        """The key is deleted while the lock is held, and another acquires it."""

        def work() -> None:
            with self.lock(expire=30):
                self.admin.delete(self.key)
                self.admin.set(self.key, "another", px=500)

        return f"{outcome(work)} at the end of a block that lost its lock"

    def order(self) -> str:
        """Threads wait one after the other; then the lock is released."""
        entered: list[int] = []

        def wait(number: int) -> None:
            with self.lock(expire=30):
                entered.append(number)

        threads = [threading.Thread(target=wait, args=(number,)) for number in range(WAITERS)]
        with self.lock(expire=30):
            for thread in threads:
                thread.start()
                time.sleep(0.17)
        for thread in threads:
            thread.join()
        return "in order of arrival" if entered == sorted(entered) else "in another order"

    def newcomers(self) -> str:
        """While one waits, a newcomer tries again and again; then the lock is released."""
        overtaken = 0
        client = client_of(self.server)
        for _ in range(20):
            entered = threading.Event()
            waiter = threading.Thread(target=self._enter, args=(entered,))
            newcomer = threading.Thread(target=self._try, args=(client, entered))
            with self.lock(expire=30):
                waiter.start()
                time.sleep(0.3)
                newcomer.start()
                time.sleep(0.05)
            newcomer.join()
            overtaken += not entered.is_set()
            waiter.join()
        return "may overtake waiters" if overtaken else "did not overtake waiters"

    def _try(self, client: redis.Redis, entered: threading.Event) -> None:
        while not entered.is_set():
            with suppress(Exception), self.make(client, patience=0, expire=30):  # busy
                return

    def _enter(self, entered: threading.Event | None = None) -> None:
        with self.lock(expire=30):
            if entered:
                entered.set()
                time.sleep(0.2)

    def requests(self) -> str:
        """One waits for two seconds."""
        waiter = threading.Thread(target=self._enter)
        with self.lock(expire=30):
            waiter.start()
            time.sleep(1)
            before = self._attempts()
            time.sleep(2)
            after = self._attempts()
        waiter.join()
        return "polls" if after - before > 4 else "does not poll"

    def _attempts(self) -> int:
        stats = self.admin.info("commandstats")
        return sum(
            stats.get(f"cmdstat_{verb}", {"calls": 0})["calls"]
            for verb in ("set", "eval", "evalsha")
        )

    def lost_acquire(self) -> str:
        """The reply to the acquisition is lost."""
        client = self._losing()
        Losing.armed = True
        since = time.monotonic()
        lock = self.make(client, expire=3)
        end = outcome(lock.__enter__)
        took = time.monotonic() - since
        if end == "no error":
            end = "acquired after its own lease" if took > 2 else "acquired"
            lock.__exit__(None, None, None)
        self.admin.delete(self.key)
        return end

    def lost_release(self) -> str:
        """The reply to the release is lost."""
        lock = self.make(self._losing(), expire=30)
        lock.__enter__()
        Losing.armed = True
        end = outcome(lambda: lock.__exit__(None, None, None))
        self.admin.delete(self.key)
        return f"{end} though the lock was held and released"

    def _losing(self) -> redis.Redis:
        client = client_of(self.server)  # with the retries that are redis-py's default
        client.connection_pool.connection_class = Losing
        self.make(client, expire=30).__enter__()  # its scripts are known to the server
        self.admin.delete(self.key)
        return client

    def reentrancy(self) -> str:
        """A thread that holds the lock acquires it again by the same object."""
        lock = self.lock(patience=2, expire=30)

        def again() -> None:
            with lock, lock:
                pass

        since = time.monotonic()
        end = outcome(again)
        self.admin.delete(self.key)
        return f"{end}, {'immediately' if time.monotonic() - since < 1 else 'after waiting'}"

    def fence(self) -> str:
        """Whether there is a number of the acquisition."""
        lock = self.lock(expire=30)
        held = lock.__enter__()
        names = [name for name in dir(held) if "fenc" in name.lower()]
        lock.__exit__(None, None, None)
        return ", ".join(names) or "none"

    def cluster(self) -> str:
        """The lock is acquired and released through a client of a cluster."""
        with LocalCluster() as nodes:
            client = nodes.client()
            return outcome(lambda: self.make(client).__enter__().release())


def measure(name: str, *situations: str) -> None:
    for situation in situations or SITUATIONS:
        with LocalServer() as server:
            print(f"{situation}: {getattr(Subject(name, server), situation)()}", flush=True)


if __name__ == "__main__":
    measure(*sys.argv[1:])
