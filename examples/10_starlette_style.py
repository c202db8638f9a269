"""Starlette and FastAPI: an async route under @redis_lock, the client created in the lifespan.

The hook is called once for each event loop, at the first lock; the lifespan closes the client.
One exception handler responds with 409 and Retry-After.

Prints, among others::

    free: 200 paid order 7
    busy: 409 order:7 is busy, Retry-After ...
    twenty at once: 1 x 200, 19 x 409
"""

import asyncio
import collections
import contextlib
import math
import pathlib
import sys

import httpx
import redis.asyncio
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

sys.path.extend(map(str, pathlib.Path(__file__).resolve().parents[:2]))
from _server import server_url

from redis_lock_decorators import LockTimeoutError, configure, redis_lock
from redis_lock_decorators.asyncio import acquire_lock, release_lock


@redis_lock("order:{order_id}", acquire_time=0, expire=30)
async def charge(order_id):
    await asyncio.sleep(0.3)
    return f"paid order {order_id}"


async def pay(request):
    return PlainTextResponse(await charge(request.path_params["order_id"]))


async def busy(request, error):
    wait = {"Retry-After": str(math.ceil(min(error.free_in or 1, 60)))}
    return PlainTextResponse(f"{error.lock_name} is busy", 409, wait)


def create_app(redis_url):
    @contextlib.asynccontextmanager
    async def lifespan(app):
        async with redis.asyncio.Redis.from_url(redis_url) as app.state.redis:
            configure(get_async_redis_connection=lambda: app.state.redis)
            yield

    route = Route("/orders/{order_id:int}/payment", pay, methods=["POST"])
    return Starlette(routes=[route], lifespan=lifespan, exception_handlers={LockTimeoutError: busy})


def show(what, response):
    wait = f", Retry-After {response.headers['Retry-After']}" if response.status_code != 200 else ""
    print(f"{what}: {response.status_code} {response.text}{wait}")


async def visit(app):
    server = httpx.ASGITransport(app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=server, base_url="http://shop") as client,
    ):
        show("free", await client.post("/orders/7/payment"))
        identifier = await acquire_lock(app.state.redis, "order:7", expire=3)
        show("busy", await client.post("/orders/7/payment"))
        await release_lock(app.state.redis, "order:7", identifier)
        responses = await asyncio.gather(*[client.post("/orders/8/payment") for _ in range(20)])
        codes = collections.Counter(response.status_code for response in responses)
        print(f"twenty at once: {codes[200]} x 200, {codes[409]} x 409")


def main():
    with server_url() as url:
        asyncio.run(visit(create_app(url)))


if __name__ == "__main__":
    main()
