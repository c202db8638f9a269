"""A WSGI program that uses locks before its server forks and in its requests.

Served by gunicorn: ``gunicorn --preload support.web_program:app``, with ``REDIS_PORT`` set.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import parse_qs

import redis

from redis_lock_decorators import RedisLock, configure

PORT = int(os.environ["REDIS_PORT"])
#: Seconds of a lease: shorter than the work done under it.
EXPIRE = 0.9


def connect() -> redis.Redis:
    return redis.Redis(port=PORT)


configure(get_redis_connection=connect, expire=EXPIRE, acquire_time=60)

with RedisLock("used before the fork"):
    time.sleep(0.4)  # its background thread has started by now
#: Held by the server's master process, while its workers start and end.
of_server = RedisLock("of the server").acquire()


def enter(seconds: float) -> int:
    """Enter a lock; the number of holders."""
    with RedisLock("gate"):
        client = connect()
        met = client.incr("inside")
        time.sleep(seconds)
        client.decr("inside")
        client.close()
        return int(met)


def hold(seconds: float) -> tuple[bool, bool]:
    """Hold a lock for this long; whether it was lost, and is still owned."""
    client = connect()
    with RedisLock("held") as lease:
        client.set("holder", os.getpid())
        time.sleep(seconds)
        client.incr("finished")
        client.close()
        return lease.lost, lease.owned()


def long_lease(seconds: float) -> bool:
    """Hold a lock whose lease would outlast the test."""
    client = connect()
    with RedisLock("long", expire=300):
        client.set("holder", os.getpid())
        time.sleep(seconds)
        return True


def inherited(seconds: float) -> tuple[bool, str]:
    """Try to release the master process's lease in a worker; whether it is lost, and the error."""
    assert of_server is not None
    try:
        of_server.release()
    except Exception as error:
        return of_server.lost, type(error).__name__
    return of_server.lost, "released"


WORKS: dict[str, Callable[[float], Any]] = {
    "/enter": enter,
    "/hold": hold,
    "/long": long_lease,
    "/inherited": inherited,
}


def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    """Call the function of a path, with ``seconds``."""
    query = parse_qs(environ["QUERY_STRING"])
    found = WORKS[environ["PATH_INFO"]](float(query.get("seconds", ["0"])[0]))
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [repr(found).encode()]
