"""Wrong arguments of the integrations are refused at once, by name."""

from __future__ import annotations

import datetime
import http
import math
from typing import Any

import pytest
import redis
from support.fronts import LEGACY

from redis_lock_decorators import ConfigurationError, LockError, LockNameError

pytestmark = pytest.mark.skipif(LEGACY, reason="the frameworks need a newer redis-py")

CLIENT = redis.Redis(port=1)
HIDDEN = "s3cret"
WRONG_URLS = [
    "http://host",
    "localhost:6379",
    f"redis://:{HIDDEN}@host:port",
    f"redis://a:{HIDDEN}#@b",
]
NO_DURATIONS = [0, -1, "5", None, True, math.inf, math.nan, datetime.timedelta(1), 10**400]


def work() -> None:
    """What is decorated."""


@pytest.mark.parametrize("value", NO_DURATIONS)
@pytest.mark.parametrize("queue", ["celery", "dramatiq", "rq", "taskiq"])
def test_pause_that_is_no_duration_is_refused(queue: str, value: Any) -> None:
    contrib = pytest.importorskip(f"redis_lock_decorators.contrib.{queue}")

    with pytest.raises(ConfigurationError, match="retry_after"):
        contrib.single_instance("shop", retry_after=value)(work)


@pytest.mark.parametrize("queue", ["celery", "dramatiq", "rq", "taskiq"])
def test_decorator_without_parentheses_is_refused(queue: str) -> None:
    contrib = pytest.importorskip(f"redis_lock_decorators.contrib.{queue}")

    with pytest.raises(ConfigurationError, match="with parentheses"):
        contrib.single_instance(work)


@pytest.mark.parametrize("queue", ["celery", "dramatiq", "rq", "taskiq"])
def test_client_instead_of_locks_is_refused(queue: str) -> None:
    contrib = pytest.importorskip(f"redis_lock_decorators.contrib.{queue}")

    with pytest.raises(ConfigurationError, match=r"Locks\(client=client\)"):
        contrib.single_instance("shop", locks=CLIENT)(work)


@pytest.mark.parametrize("status", [None, "423", 0, 200, 9999, True])
def test_status_that_is_none_of_an_error_is_refused(status: Any) -> None:
    starlette = pytest.importorskip("redis_lock_decorators.contrib.starlette")
    flask = pytest.importorskip("redis_lock_decorators.contrib.flask")
    from flask import Flask
    from starlette.applications import Starlette

    with pytest.raises(ConfigurationError, match="status="):
        starlette.StarletteLocks().init_app(Starlette(), status=status)
    app = Flask("app")
    app.config["REDIS_LOCK_STATUS"] = status
    with pytest.raises(ConfigurationError, match="REDIS_LOCK_STATUS="):
        flask.FlaskLocks().init_app(app)


@pytest.mark.parametrize(
    "wrong", [{"expiree": 5}, {"acquire_time": "3"}, {"on_busy": "skip"}, {"client": 5}], ids=str
)
def test_wrong_options_of_a_dependency_are_refused(wrong: dict[str, Any]) -> None:
    fastapi = pytest.importorskip("redis_lock_decorators.contrib.fastapi")

    for name in ("shop", lambda: "shop"):
        with pytest.raises((ConfigurationError, TypeError), match=next(iter(wrong))):
            fastapi.FastAPILocks().held(name, **wrong)


def test_empty_name_of_a_dependency_is_refused() -> None:
    fastapi = pytest.importorskip("redis_lock_decorators.contrib.fastapi")

    with pytest.raises(LockNameError):
        fastapi.FastAPILocks().held("")


def test_status_may_be_a_member_of_an_enumeration() -> None:
    from redis_lock_decorators.contrib._arguments import checked_status

    assert checked_status("status", http.HTTPStatus.CONFLICT) == 409


class TestOncePer:
    @pytest.fixture
    def once_per(self) -> Any:
        return pytest.importorskip("redis_lock_decorators.contrib.apscheduler").once_per

    @pytest.mark.parametrize("period", NO_DURATIONS)
    def test_period_that_is_no_duration_is_refused(self, once_per: Any, period: Any) -> None:
        with pytest.raises(ConfigurationError, match="period"):
            once_per(period)

    @pytest.mark.parametrize("slack", ["", "1", -1, True, math.nan, datetime.timedelta(1)])
    def test_slack_that_is_no_duration_is_refused(self, once_per: Any, slack: Any) -> None:
        with pytest.raises(ConfigurationError, match="slack"):
            once_per(60, slack=slack)

    def test_missing_parentheses_are_explained(self, once_per: Any) -> None:
        with pytest.raises(ConfigurationError, match=r"write @once_per\(60\)"):
            once_per(work)

    @pytest.mark.parametrize("option", ["acquire_time", "min_hold", "on_busy"])
    def test_options_that_follow_from_the_period_are_refused(
        self, once_per: Any, option: str
    ) -> None:
        with pytest.raises(ConfigurationError, match=option):
            once_per(60, **{option: 1})

    def test_client_instead_of_locks_is_refused(self, once_per: Any) -> None:
        with pytest.raises(ConfigurationError, match="locks"):
            once_per(60, locks=CLIENT)


class TestFastAPI:
    @pytest.fixture
    def locks(self) -> Any:
        return pytest.importorskip("redis_lock_decorators.contrib.fastapi").FastAPILocks()

    @pytest.mark.parametrize("name", [None, 5])
    def test_name_of_another_type_is_refused(self, locks: Any, name: Any) -> None:
        with pytest.raises(LockError, match="held"):
            locks.held(name)

    @pytest.mark.parametrize("url", [None, CLIENT, *WRONG_URLS])
    def test_wrong_url_is_refused(self, locks: Any, url: Any) -> None:
        with pytest.raises(ConfigurationError, match="url"):
            locks.lifespan(url)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("REDIS_LOCK_OPTIONS", "expire=3"),
        ("REDIS_LOCK_OPTIONS", None),
        ("REDIS_LOCK_OPTION", {"expire": 3}),
        ("REDIS_LOCK_STATUSES", 409),
        ("REDIS_LOCK_URL", 5),
        *(("REDIS_LOCK_URL", url) for url in WRONG_URLS),
    ],
)
def test_wrong_settings_of_flask_are_refused(setting: str, value: Any) -> None:
    flask = pytest.importorskip("flask")
    from redis_lock_decorators.contrib.flask import FlaskLocks

    app = flask.Flask("shop")
    app.config[setting] = value

    with pytest.raises(ConfigurationError, match=setting) as refused:
        FlaskLocks().init_app(app)

    assert HIDDEN not in str(refused.value)


def test_other_settings_of_a_flask_program_are_left_alone() -> None:
    flask = pytest.importorskip("flask")
    from redis_lock_decorators.contrib.flask import FlaskLocks

    app = flask.Flask("shop")
    app.config.update(REDIS_LOCK_RETRIES=3, REDIS_LOCK_OPTIONS={"expire": 3}, REDIS_URL="http://")
    locks = FlaskLocks()
    locks.init_app(app)

    assert app.extensions["redis_lock"] is locks
