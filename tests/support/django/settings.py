"""The connection from the settings, the cache and the command."""

from __future__ import annotations

import io
import json
import os
import threading
import time
from contextlib import redirect_stdout

from support.django.project import set_up

set_up()

import pytest
from django.core.cache import caches
from django.core.exceptions import ImproperlyConfigured
from django.core.management import call_command, execute_from_command_line
from django.test import SimpleTestCase, override_settings
from redis.exceptions import ConnectionError

from redis_lock_decorators import RedisLock
from redis_lock_decorators.asyncio import RedisLock as AsyncRedisLock

URL = os.environ["REDIS_URL"]
OPTIONS = {"prefix": "site:lock:"}


def caches_of(backend, **options):
    return {"default": {"BACKEND": backend, "LOCATION": URL, "OPTIONS": options}}


class Connections(SimpleTestCase):
    def tearDown(self):
        with override_settings(REDIS_LOCK={"URL": URL, "OPTIONS": OPTIONS}):
            pass

    def test_options_of_a_setting_end_with_it(self):
        with override_settings(REDIS_LOCK={"URL": URL, "OPTIONS": {"expire": 7, "prefix": "p:"}}):
            assert RedisLock("used").acquire().key == "p:used"

        lease = RedisLock("used").acquire()

        assert (lease.key, lease.expire) == ("site:lock:used", 10.0)
        lease.release()

    async def test_server_of_a_setting_ends_with_it(self):
        with override_settings(REDIS_LOCK={"URL": "redis://localhost:1"}):
            with pytest.raises(ConnectionError):
                RedisLock("used").locked()

            with override_settings(REDIS_LOCK={"OPTIONS": OPTIONS}):
                await self.use()  # the server of the environment

    async def use(self):
        with RedisLock("used") as lease:
            assert lease.key == "site:lock:used"
        async with AsyncRedisLock("used") as lease:
            assert lease.key == "site:lock:used"

    async def test_locks_of_the_process_use_the_url(self):
        await self.use()

    async def test_locks_use_the_server_of_a_cache_of_django(self):
        with override_settings(REDIS_LOCK={"CACHE": "default", "OPTIONS": OPTIONS}):
            await self.use()

    async def test_locks_use_the_server_of_django_redis(self):
        try:
            import django_redis  # noqa: F401
        except ImportError:
            self.skipTest("django-redis is missing")
        with (
            override_settings(CACHES=caches_of("django_redis.cache.RedisCache")),
            override_settings(REDIS_LOCK={"CACHE": "default", "OPTIONS": OPTIONS}),
        ):
            await self.use()

    async def test_locks_use_functions_of_the_project(self):
        functions = {
            "CLIENT": "support.django.settings.connect",
            "ASYNC_CLIENT": "support.django.settings.connect_async",
            "OPTIONS": OPTIONS,
        }
        with override_settings(REDIS_LOCK=functions):
            await self.use()

    def test_cache_elsewhere_is_refused(self):
        elsewhere = override_settings(REDIS_LOCK={"CACHE": "local"})
        with elsewhere, pytest.raises(ImproperlyConfigured, match="'local' is not in Redis"):
            RedisLock("used").locked()

    def test_wrong_settings_are_refused(self):
        wrong_values = [{"URL": None}, {"URL": 5}, {"CLIENT": connect}, {"OPTIONS": None}, None, []]
        wrong_values.append({"URL": "http://host"})
        for wrong in ({"url": URL}, {"URL": URL, "CACHE": "default"}, *wrong_values):
            with self.subTest(wrong), pytest.raises(ImproperlyConfigured, match="REDIS_LOCK"):
                override_settings(REDIS_LOCK=wrong).enable()


def connect():
    import redis

    return redis.Redis.from_url(URL)


def connect_async():
    import redis.asyncio

    return redis.asyncio.Redis.from_url(URL)


class Caches(SimpleTestCase):
    def setUp(self):
        caches["default"].clear()

    def test_missing_value_is_computed_once(self):
        computed, found = [], []

        def compute():
            computed.append(1)
            time.sleep(0.1)
            return "value"

        def get():
            found.append(caches["default"].get_or_set("report", compute))

        threads = [threading.Thread(target=get) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert (computed, found) == ([1], ["value"] * 8)

    async def test_missing_value_is_computed_in_an_event_loop(self):
        assert await caches["default"].aget_or_set("report", lambda: "value") == "value"
        assert await caches["default"].aget_or_set("report", lambda: "another") == "value"

    def test_lock_of_a_key_has_its_version(self):
        cache = caches["default"]

        with cache.lock("report", acquire_time=0) as lease:
            assert lease.lock_name == "cache::1:report"
            with cache.lock("report", version=2):
                pass


class Commands(SimpleTestCase):
    def run_command(self, *arguments):
        printed = io.StringIO()
        with redirect_stdout(printed), pytest.raises(SystemExit) as ended:
            execute_from_command_line(["manage.py", "redis_lock", *arguments])
        return ended.value.code, printed.getvalue()

    def test_lock_is_listed_shown_and_broken(self):
        lease = RedisLock("shown", auto_renew=False).acquire()

        code, printed = self.run_command("ls", "--json")
        assert (code, json.loads(printed)["lock_name"]) == (0, "shown")
        code, printed = self.run_command("show", "shown", "--json")
        assert (code, json.loads(printed)["identifier"]) == (0, lease.identifier)
        assert self.run_command("break", "shown", "--yes") == (0, "released shown: it is free\n")
        assert self.run_command("show", "shown")[0] == 1

    def test_command_runs_under_a_lock(self):
        with RedisLock("nightly"):
            assert self.run_command("run", "nightly", "--", "true")[0] == 75
        assert self.run_command("run", "nightly", "--", "sh", "-c", "exit 3")[0] == 3

    def test_command_is_called_by_code(self):
        with pytest.raises(SystemExit) as ended, redirect_stdout(io.StringIO()):
            call_command("redis_lock", "ls")
        assert ended.value.code == 0
