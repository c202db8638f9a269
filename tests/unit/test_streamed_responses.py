"""Responses of web frameworks that run the program's code after the view has returned."""

import asyncio
import functools
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

from redis_lock_decorators._rules.callables import refuse_unrun
from redis_lock_decorators.errors import ConfigurationError


def view() -> None: ...


def rows() -> Iterator[str]:
    yield "row"


def assert_refused(response: Any) -> None:
    with pytest.raises(ConfigurationError, match="put @redis_lock on the generator that yields"):
        refuse_unrun(view, response)


def assert_handed_on(response: Any) -> None:
    assert refuse_unrun(view, response) is response


@pytest.fixture
def django_http() -> Any:
    pytest.importorskip("django")
    from django import http
    from django.conf import settings

    if not settings.configured:
        settings.configure()
    return http


def test_django_response_that_streams_is_refused(django_http: Any) -> None:
    assert_refused(django_http.StreamingHttpResponse(rows()))


def test_other_django_responses_are_handed_on(django_http: Any) -> None:
    assert_handed_on(django_http.HttpResponse("done"))
    assert_handed_on(django_http.FileResponse(io.BytesIO(b"done")))


def test_flask_response_that_streams_is_refused() -> None:
    flask = pytest.importorskip("flask")

    assert_refused(flask.Response(rows()))
    assert_refused((flask.Response(rows()), 200))


def test_other_flask_responses_are_handed_on(tmp_path: Path) -> None:
    flask = pytest.importorskip("flask")
    file = tmp_path / "report"
    file.write_text("done")

    assert_handed_on(flask.Response("done"))
    with flask.Flask(__name__).test_request_context():
        sent = flask.send_file(file)
    assert_handed_on(sent)
    sent.close()


def test_starlette_response_that_streams_is_refused() -> None:
    responses = pytest.importorskip("starlette.responses")

    assert_refused(responses.StreamingResponse(rows()))


def test_other_starlette_responses_are_handed_on(tmp_path: Path) -> None:
    responses = pytest.importorskip("starlette.responses")

    assert_handed_on(responses.JSONResponse({}))
    assert_handed_on(responses.FileResponse(tmp_path / "report"))


def test_starlette_middleware_may_be_locked() -> None:
    pytest.importorskip("starlette")
    from starlette.middleware.base import BaseHTTPMiddleware
    from starlette.responses import JSONResponse

    class Locking(BaseHTTPMiddleware):
        async def dispatch(self, request: Any, call_next: Any) -> Any:
            return refuse_unrun(view, await call_next(request))

    sent: list[Any] = []

    async def receive() -> Any:
        await asyncio.Event().wait()

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "GET", "path": "/", "headers": [], "query_string": b""}
    asyncio.run(Locking(JSONResponse({"done": True}))(scope, receive, send))

    assert json.loads(b"".join(message.get("body", b"") for message in sent)) == {"done": True}


def test_objects_with_every_attribute_are_handed_on() -> None:
    assert_handed_on(MagicMock())
    assert_handed_on(functools.partial(rows))
