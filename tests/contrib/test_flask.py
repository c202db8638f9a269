"""Flask: the settings of an application, and the response if a lock is busy."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("flask")

import redis
from flask import Flask

from redis_lock_decorators import ConfigurationError, LockTimeoutError, RedisLock, current_lease
from redis_lock_decorators.contrib.flask import FlaskLocks


def application(server: Any, **config: Any) -> Flask:
    app, locks = Flask(__name__), FlaskLocks(acquire_time=0)
    app.config.update(REDIS_LOCK_URL=server.url, **config)
    locks.init_app(app)

    @app.get("/orders/<int:order_id>")
    @locks.redis_lock("order:{order_id}")
    def pay(order_id: int) -> str:
        lease = current_lease()
        return lease.key if lease else ""

    @app.get("/async/<int:order_id>")
    @locks.redis_lock("order:{order_id}")
    async def pay_async(order_id: int) -> str:
        return "paid"

    assert app.extensions["redis_lock"] is locks
    return app


def test_options_of_the_application_are_used(server):
    app = application(server, REDIS_LOCK_OPTIONS={"prefix": "shop:"})

    assert app.test_client().get("/orders/7").text == "shop:order:7"


def test_async_view_holds_the_lock_in_an_event_loop_of_its_own(server):
    client = application(server).test_client()

    assert [client.get("/async/7").text for _ in range(3)] == ["paid"] * 3


def test_busy_lock_gets_the_status_of_the_application(server):
    app = application(server, REDIS_LOCK_STATUS=409)

    with redis.Redis.from_url(server.url) as client, RedisLock("order:7", client=client):
        busy = [app.test_client().get(path) for path in ("/orders/7", "/async/7")]

    assert [one.status_code for one in busy] == [409, 409]
    assert 1 <= int(busy[0].headers["Retry-After"]) <= 10


def test_key_that_never_expires_gives_a_retry_after(server):
    with redis.Redis.from_url(server.url) as client:
        client.set("sys:lock:order:9", "another program")

        busy = application(server).test_client().get("/orders/9")

    assert (busy.status_code, busy.headers["Retry-After"]) == (423, "60")


def test_handler_of_the_program_replaces_the_response(server):
    app = application(server)
    app.register_error_handler(LockTimeoutError, lambda error: (f"{error.lock_name} is busy", 503))

    with redis.Redis.from_url(server.url) as client, RedisLock("order:7", client=client):
        busy = app.test_client().get("/orders/7")

    assert (busy.status_code, busy.text) == (503, "order:7 is busy")


def test_unknown_option_is_refused(server):
    with pytest.raises(ConfigurationError):
        application(server, REDIS_LOCK_OPTIONS={"timeout": 3})
