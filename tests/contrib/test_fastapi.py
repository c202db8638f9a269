"""FastAPI: dependencies that hold a lock, and the response if it is busy."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("httpx")

import fastapi
import httpx
import redis

from redis_lock_decorators import LockNameError, RedisLock
from redis_lock_decorators.asyncio import Lease
from redis_lock_decorators.contrib.fastapi import FastAPILocks


def order_name(order_id: int) -> str:
    return f"order:{order_id}"


def two_names(order_id: int) -> list[str]:
    return [f"order:{order_id}", "orders"]


def responses(server: Any, add_routes: Callable[[Any, Any], None], *paths: str) -> list[Any]:
    """The responses of an application with locks."""
    locks = FastAPILocks(acquire_time=0)
    app = fastapi.FastAPI(lifespan=locks.lifespan(server.url))
    locks.init_app(app, status=409)
    add_routes(app, locks)

    async def ask() -> list[Any]:
        transport = httpx.ASGITransport(app)
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=transport, base_url="http://shop") as client,
        ):
            return [await client.get(path) for path in paths]

    return asyncio.run(ask())


def routes(app: Any, locks: Any) -> None:
    def add(path: str, lock_name: Any, **extra: Any) -> None:
        dependency = fastapi.Depends(locks.held(lock_name), **extra)

        @app.get(path)
        async def names(lease: Lease = dependency) -> list[str]:
            lease.check()
            return list(lease.lock_names)

    add("/order/{order_id}", order_name)
    add("/function/{order_id}", order_name, scope="function")
    add("/two/{order_id}", two_names)
    add("/text", "report")


def test_dependency_holds_the_lock_of_converted_parameters(server):
    found = responses(server, routes, "/order/07", "/function/7", "/two/7", "/text")

    assert [one.json() for one in found] == [
        ["order:7"],
        ["order:7"],
        ["order:7", "orders"],
        ["report"],
    ]


def test_wrong_parameter_is_refused_by_fastapi(server):
    (found,) = responses(server, routes, "/order/seven")

    assert found.status_code == 422


def test_busy_lock_of_a_dependency_gets_the_status_of_the_application(server):
    with redis.Redis.from_url(server.url) as client, RedisLock("order:7", client=client):
        found = responses(server, routes, "/order/7", "/function/7", "/two/7", "/order/8")

    assert [one.status_code for one in found] == [409, 409, 409, 200]
    assert 1 <= int(found[0].headers["Retry-After"]) <= 10


def test_fields_of_a_text_are_refused():
    with pytest.raises(LockNameError, match="give a function"):
        FastAPILocks().held("order:{order_id}")
