"""Locks until the commit."""

from __future__ import annotations

import itertools
import threading
from functools import partial
from unittest.mock import patch

import redis

from support.django.project import set_up
from support.waiting import until

set_up()

import pytest
from django.db import transaction
from django.test import SimpleTestCase, TestCase

from redis_lock_decorators import (
    ConfigurationError,
    Lease,
    LockError,
    LockLostError,
    LockTimeoutError,
    RedisLock,
    force_release,
)
from redis_lock_decorators.contrib.django import until_commit
from redis_lock_decorators.testing import LocalServer

numbers = itertools.count()


class Failed(Exception):
    """The failure of a program."""


class Locked(SimpleTestCase):
    databases = "__all__"

    def setUp(self) -> None:
        self.name = f"commit:{next(numbers)}"

    def is_locked(self) -> bool:
        return RedisLock(self.name).locked()

    def hold(self, **options):
        return until_commit(self.name, acquire_time=0, **options)


class Commits(Locked):
    def test_lock_is_held_until_the_commit(self):
        with transaction.atomic():
            with self.hold():
                pass
            assert self.is_locked()

        assert not self.is_locked()

    def test_lock_is_released_at_the_end_of_the_block_without_transaction(self):
        with self.hold():
            with transaction.atomic():
                pass
            assert self.is_locked()

        assert not self.is_locked()

    def test_nested_transaction_does_not_release(self):
        with transaction.atomic():
            with transaction.atomic(), self.hold():
                pass
            assert self.is_locked()

        assert not self.is_locked()

    def test_hooks_of_the_program_that_fail_do_not_keep_the_lock(self):
        def fail():
            raise Failed

        for is_first in (True, False):
            with pytest.raises(Failed), transaction.atomic():
                if is_first:
                    transaction.on_commit(fail)
                with self.hold():
                    transaction.on_commit(fail)

            assert not self.is_locked()

    def test_lock_is_released_before_hooks_are_called(self):
        """Also those that were registered before: they may fail, or use the lock."""
        found = []
        with transaction.atomic():
            transaction.on_commit(lambda: found.append(self.is_locked()))
            with self.hold():
                transaction.on_commit(lambda: found.append(self.is_locked()))

        assert found == [False, False]

    def test_block_is_left_by_an_exception_that_the_transaction_survives(self):
        with transaction.atomic():
            with pytest.raises(Failed), self.hold():
                raise Failed
            assert self.is_locked()

        assert not self.is_locked()

    def test_lock_is_held_until_both_databases_have_committed(self):
        with transaction.atomic("other"):
            with transaction.atomic(), self.hold():
                pass
            assert self.is_locked()

        assert not self.is_locked()

    def test_lock_with_another_prefix_is_another_lock(self):
        with transaction.atomic():
            with self.hold(prefix="other:") as other, self.hold() as lease:
                assert other.key != lease.key
                assert self.is_locked()
            with self.hold(prefix="other:") as again:
                assert again is other

    def test_lock_of_another_server_is_another_lock(self):
        with LocalServer() as server, server.client() as client, transaction.atomic():
            with self.hold() as lease, self.hold(client=client) as other:
                assert other is not lease
                assert client.exists(lease.key)
            with self.hold(client=client) as again:
                assert again is other

    def test_lease_is_used_in_the_transaction_of_another_database(self):
        with transaction.atomic(), self.hold() as lease:
            with transaction.atomic("other"), self.hold(using="other") as again:
                assert again is lease
            assert self.is_locked()

        assert not self.is_locked()

    def test_fence_is_refused_where_the_transaction_has_none(self):
        refused = pytest.raises(ConfigurationError, match="fencing")
        with transaction.atomic(), self.hold(), refused, self.hold(fencing=True):
            pytest.fail("there is no fence")

    def test_lock_of_one_database_ignores_others(self):
        with transaction.atomic():
            with transaction.atomic("other"), self.hold(using="other"):
                pass
            assert not self.is_locked()

            with self.hold(using="other"):
                pass
            assert not self.is_locked()

    def test_transaction_that_acquires_again_uses_its_lease(self):
        with transaction.atomic():
            with self.hold() as first:
                pass
            with transaction.atomic(), transaction.atomic("other"), self.hold() as second:
                assert second is first
            assert self.is_locked()

        assert not self.is_locked()

    def test_other_lock_of_the_same_name_in_the_transaction_would_wait_for_itself(self):
        with transaction.atomic():
            with self.hold():
                pass
            with pytest.raises(LockError, match="itself"), RedisLock(self.name):
                pass

        with RedisLock(self.name, acquire_time=0):
            pass

    def test_busy_lock_raises_and_the_transaction_goes_on(self):
        with RedisLock(self.name), transaction.atomic():
            thread_error = run_in_thread(self.enter)
            assert isinstance(thread_error, LockTimeoutError)
        assert run_in_thread(self.enter) is None

    def enter(self):
        with transaction.atomic(), self.hold():
            pass


class Rollbacks(Locked):
    def test_rollback_by_an_exception_releases(self):
        with pytest.raises(Failed), transaction.atomic(), self.hold():
            raise Failed

        assert not self.is_locked()

    def test_requested_rollback_releases(self):
        with transaction.atomic():
            with self.hold():
                transaction.set_rollback(True)
            assert self.is_locked()

        assert not self.is_locked()

    def test_rollback_of_the_savepoint_around_the_block_releases(self):
        with transaction.atomic():
            with pytest.raises(Failed), transaction.atomic(), self.hold():
                raise Failed

            assert not self.is_locked()

    def test_min_hold_has_no_effect_after_a_rollback(self):
        with pytest.raises(Failed), transaction.atomic(), self.hold(min_hold=30):
            raise Failed
        assert not self.is_locked()

        with transaction.atomic(), self.hold(min_hold=30):
            pass
        assert self.is_locked()


class Losses(Locked):
    def test_loss_before_the_end_of_the_block_prevents_the_commit(self):
        committed = []
        with pytest.raises(LockLostError), transaction.atomic(), self.hold():
            transaction.on_commit(partial(committed.append, 1))
            force_release(self.name)

        assert committed == []

    def test_loss_between_the_block_and_the_commit_is_logged(self):
        with self.assertLogs("django.db.backends.base", "ERROR") as logged, transaction.atomic():
            with self.hold():
                pass
            force_release(self.name)

        assert f"release of the lock '{self.name}'" in logged.output[0]
        assert "ended before the work did" in logged.output[0]

    def test_outcome_that_is_unknown_leaves_the_decision_to_the_deadline(self):
        unknown = patch.object(Lease, "extend", side_effect=redis.ConnectionError)
        with unknown, transaction.atomic(), self.hold():
            pass
        assert not self.is_locked()

        short = self.hold(expire=0.05, auto_renew=False)
        with pytest.raises(LockLostError), unknown, transaction.atomic(), short as lease:
            until(lambda: lease.lost)


class InTestCase(TestCase):
    """``TestCase`` has a transaction around each test, which it never commits."""

    databases = "__all__"

    def test_lock_is_released_at_the_end_of_the_block(self):
        for _ in range(2):
            with transaction.atomic(), until_commit("of a test", acquire_time=0):
                assert RedisLock("of a test").locked()

        assert not RedisLock("of a test").locked()


def run_in_thread(work) -> BaseException | None:
    """Run a function on another thread; return its error."""
    errors: list[BaseException | None] = [None]

    def run() -> None:
        try:
            work()
        except BaseException as error:
            errors[0] = error

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return errors[0]
