"""Starlette: visits of pages, counted by the worker processes of uvicorn.

The server of the locks is in the environment::

    REDIS_URL=redis://localhost uvicorn --workers 2 starlette_counter:app
"""

import asyncio
import os

import visits
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

from redis_lock_decorators.contrib.starlette import StarletteLocks

locks = StarletteLocks(acquire_time=20, expire=2, owner_info=True)


@locks.redis_lock("page:{request.path_params[page]}")
async def visit(request):
    return await visit_without_lock(request)


@locks.redis_lock("page:{request.path_params[page]}", acquire_time=0)
async def try_to_visit(request):
    return await visit_without_lock(request)


async def visit_without_lock(request):
    page, seconds = request.path_params["page"], float(request.query_params.get("seconds", 0.01))
    count = visits.counted(page)
    await asyncio.sleep(seconds)
    visits.save(page, count + 1)
    return JSONResponse({"visits": count + 1})


routes = [
    Route("/pages/{page}", visit, methods=["POST"]),
    Route("/tries/{page}", try_to_visit, methods=["POST"]),
    Route("/bare/{page}", visit_without_lock, methods=["POST"]),
]
url = os.environ.get("REDIS_URL", "redis://localhost:6379/0")
app = Starlette(routes=routes, lifespan=locks.lifespan(url))
locks.init_app(app)
