"""FastAPI: visits of pages, counted by the worker processes of uvicorn.

The server of the locks is in the environment::

    REDIS_URL=redis://localhost uvicorn --workers 2 fastapi_counter:app
"""

import asyncio
import os
import time
from typing import Annotated

import visits
from fastapi import Depends, FastAPI

from redis_lock_decorators.asyncio import Lease
from redis_lock_decorators.contrib.fastapi import FastAPILocks

locks = FastAPILocks(acquire_time=20, expire=2, owner_info=True)
url = os.environ.get("REDIS_URL", "redis://localhost:6379/0")
app = FastAPI(lifespan=locks.lifespan(url))
locks.init_app(app)


@app.post("/pages/{page}")
@locks.redis_lock("page:{page}")
async def visit(page: str, seconds: float = 0.01):
    return await visit_without_lock(page, seconds)


@app.post("/threads/{page}")
@locks.redis_lock("page:{page}")
def visit_in_thread(page: str, seconds: float = 0.01):
    count = visits.counted(page)
    time.sleep(seconds)
    visits.save(page, count + 1)
    return {"visits": count + 1}


def page_name(page: str) -> str:
    return f"page:{page}"


Held = Annotated[Lease, Depends(locks.held(page_name))]


@app.post("/held/{page}")
async def visit_with_dependency(page: str, lease: Held, seconds: float = 0.01):
    found = await visit_without_lock(page, seconds)
    lease.check()
    return found


@app.post("/tries/{page}")
@locks.redis_lock("page:{page}", acquire_time=0)
async def try_to_visit(page: str, seconds: float = 0.01):
    return await visit_without_lock(page, seconds)


@app.post("/bare/{page}")
async def visit_without_lock(page: str, seconds: float = 0.01):
    count = visits.counted(page)
    await asyncio.sleep(seconds)
    visits.save(page, count + 1)
    return {"visits": count + 1}
