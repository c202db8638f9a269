"""Counters behind real web servers: exact with the locks of the integration, wrong without."""

from __future__ import annotations

import http.client
import os
import runpy
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any, NamedTuple

import pytest
from support.waiting import until
from support.web_servers import EXAMPLES, WebServer, served

from redis_lock_decorators import RedisLock

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the servers need POSIX")


class Kind(NamedTuple):
    """A program of the examples, and how it is served."""

    program: str
    server: str
    options: tuple[str, ...]
    needed: str
    locked: tuple[str, ...]
    busy: int = 423


KINDS = {
    "flask": Kind("flask_counter:app", "gunicorn", ("--threads", "4"), "flask", ("pages",)),
    "fastapi": Kind("fastapi_counter:app", "uvicorn", (), "fastapi", ("pages", "threads", "held")),
    "starlette": Kind("starlette_counter:app", "uvicorn", (), "starlette", ("pages",)),
    "django": Kind(
        *("django_counter:app", "gunicorn", ("--threads", "4"), "django"),
        *(("pages", "services"), 409),
    ),
    "django-sync": Kind("django_counter:app", "gunicorn", (), "django", ("pages", "async"), 409),
    "django-asgi": Kind(
        "django_counter:async_app", "uvicorn", (), "django", ("pages", "async"), 409
    ),
}
VISITS = 40
FAILED = (OSError, http.client.HTTPException)


#: The kinds that other kinds cover in part.
SLOW = {"django-asgi", "django-sync", "starlette"}


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in KINDS],
)
def kind(request: pytest.FixtureRequest) -> Kind:
    kind = KINDS[request.param]
    for package in (kind.needed, kind.server):
        pytest.importorskip(package)
    return kind


@pytest.fixture(scope="module")
def web(kind: Kind, server: Any, tmp_path_factory: Any) -> Iterator[WebServer]:
    """The running server of a program, whose processes are in the folder of the log."""
    folder = tmp_path_factory.mktemp(kind.needed)
    if kind.needed == "django":
        subprocess.run([sys.executable, EXAMPLES / "django_counter.py"], cwd=folder, check=True)
    url = {"REDIS_URL": server.url, "FLASK_REDIS_LOCK_URL": server.url}
    with served(folder, kind.server, kind.program, *kind.options, **url) as web:
        yield web


def visit(web: WebServer, path: str, times: int) -> Counter[int]:
    """Send requests, eight at a time; return the number of each status, 0 for no response."""

    def one(_: int) -> int:
        try:
            return web.post(path).status
        except FAILED:
            return 0

    with ThreadPoolExecutor(8) as crowd:
        return Counter(crowd.map(one, range(times)))


def counted(web: WebServer, page: str) -> tuple[int, int]:
    """Return the counter of a page, and the visits in its log."""
    folder = web.log.parent
    if not (folder / "db.sqlite3").exists():
        visits = runpy.run_path(str(EXAMPLES / "visits.py"))
        return visits["counted"](folder / page), visits["logged"](folder / page)
    with closing(sqlite3.connect(folder / "db.sqlite3")) as database:
        (number,) = database.execute("SELECT visits FROM counter_page WHERE name=?", (page,))
        (log,) = database.execute("SELECT count(*) FROM counter_visit WHERE page_id=?", (page,))
        return number[0], log[0]


def test_counter_is_wrong_without_lock(web):
    statuses = visit(web, "/bare/wrong", VISITS)

    assert statuses == {200: VISITS}
    count, logged = counted(web, "wrong")
    assert count < logged == VISITS


def test_counter_is_exact_with_lock(web, kind):
    for path in kind.locked:
        statuses = visit(web, f"/{path}/exact{path}", VISITS)

        assert statuses == {200: VISITS}, web.log.read_text()
        assert counted(web, f"exact{path}") == (VISITS, VISITS)


def test_counter_is_exact_if_worker_is_killed_while_it_holds_the_lock(web, kind, server):
    lock = RedisLock("page:killed", client=server.client())
    with ThreadPoolExecutor(2) as crowd:
        killed = crowd.submit(web.post, "/pages/killed?seconds=30")
        until(lambda: (lock.owner_info() or {}).get("pid"))
        load = crowd.submit(visit, web, "/pages/killed", VISITS)

        os.kill(lock.owner_info()["pid"], signal.SIGKILL)

        assert isinstance(killed.exception(), FAILED)
        statuses = load.result()
    count, logged = counted(web, "killed")
    assert count == logged >= statuses[200] > 0
    assert set(statuses) <= {0, 200}


def test_request_whose_lock_is_busy_is_refused_with_retry_after(web, kind, server):
    with RedisLock("page:busy", client=server.client()):
        status, retry_after, text = web.post("/tries/busy")

    assert (status, text) == (kind.busy, "Another request is working on this. Try again later.")
    assert 1 <= int(retry_after) <= 10
    assert web.post("/tries/busy").status == 200


def test_request_that_lost_its_lock_fails(web, kind, server):
    lock = RedisLock("page:lost", client=server.client())
    for path in kind.locked:
        if path == "async":  # it ends too soon
            continue
        with ThreadPoolExecutor(1) as crowd:
            broken = crowd.submit(web.post, f"/{path}/lost?seconds=1")
            until(lock.locked)

            assert lock.force_release()

            assert broken.result().status == 500, path
