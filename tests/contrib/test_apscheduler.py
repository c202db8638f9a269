"""Jobs of APScheduler that run once in their period."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from support.job_runs import MARKS, ran, used_by_default

from redis_lock_decorators import ConfigurationError
from redis_lock_decorators.testing import LocalServer

pytestmark = MARKS


@pytest.fixture(scope="module")
def broker() -> Iterator[Any]:
    with LocalServer() as server:
        yield server


@pytest.fixture
def url(broker: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with used_by_default(broker, monkeypatch):
        yield str(broker.url)


class TestAPScheduler:
    @pytest.fixture
    def once_per(self, url: str) -> Any:
        pytest.importorskip("apscheduler")
        from redis_lock_decorators.contrib.apscheduler import once_per

        return once_per

    def test_job_runs_once_in_its_period(self, once_per: Any) -> None:
        @once_per(60, "{item}")
        def digest(item):
            ran.append(item)

        for item in "aab":
            digest(item)

        assert ran == ["a", "b"]

    def test_failed_run_does_not_count(self, once_per: Any) -> None:
        @once_per(60)
        def digest():
            ran.append("run")
            if len(ran) == 1:
                raise OSError("failed")

        with pytest.raises(OSError, match="failed"):
            digest()
        digest()
        digest()

        assert ran == ["run", "run"]

    def test_scheduler_checks_arguments_and_runs_async_jobs(self, once_per: Any) -> None:
        from apscheduler.schedulers.asyncio import AsyncIOScheduler

        @once_per(60)
        async def digest(item):
            ran.append(item)

        async def main() -> None:
            scheduler = AsyncIOScheduler()
            with pytest.raises(ValueError, match="item"):
                scheduler.add_job(digest, "interval", seconds=0.1)
            scheduler.add_job(digest, "interval", seconds=0.1, args=["a"])
            scheduler.start()
            await asyncio.sleep(0.6)
            scheduler.shutdown()

        asyncio.run(main())
        assert ran == ["a"]

    def test_job_store_finds_the_decorated_function(self, once_per: Any) -> None:
        from apscheduler.util import obj_to_ref, ref_to_obj

        assert ref_to_obj(obj_to_ref(stored_job)) is stored_job

    @pytest.mark.parametrize("job", [lambda: None, partial(print, "eu")], ids=["lambda", "partial"])
    def test_job_whose_name_others_may_have_needs_a_lock_name(
        self, once_per: Any, job: Any
    ) -> None:
        with pytest.raises(ConfigurationError, match="give one"):
            once_per(60)(job)

        once_per(60, "job")(job)

    def test_period_that_is_no_number_of_seconds_is_refused(self, once_per: Any) -> None:
        with pytest.raises(ConfigurationError, match=r"period=10+: give at most 31622400 s"):
            once_per(10**9)

    @pytest.mark.parametrize("slack", [-1, 60, 61])
    def test_slack_outside_the_period_is_refused(self, once_per: Any, slack: float) -> None:
        with pytest.raises(ConfigurationError, match="slack"):
            once_per(60, slack=slack)


def stored_job() -> None:
    """A job that a job store refers to by its name."""
