"""@redis_lock: results, errors and busy locks of decorated functions and generators."""

from __future__ import annotations

import functools
import inspect

import pytest

from redis_lock_decorators import (
    ConfigurationError,
    LockLostError,
    Locks,
    LockTimeoutError,
    current_lease,
)


@pytest.fixture
def locks(client, name):
    """A separate Locks; its keys start with the test's name."""
    return Locks(lambda: client, prefix=f"{name}:")


def test_result_and_errors_of_the_function_propagate(locks):
    @locks.redis_lock("x")
    def work(fail):
        if fail:
            raise ValueError("own")
        return 42

    assert work(False) == 42
    with pytest.raises(ValueError, match="own"):
        work(True)
    assert not work.lock_for(True).locked()


@pytest.fixture
def busy(locks):
    """A lock named "busy" that is held during the test."""
    lease = locks.lock("busy").acquire()
    lease._claim.owner = None  # so that this thread regards it as held by another
    yield lease
    lease.release()


def test_call_with_the_function_accepts_every_option(locks, busy):
    def work(n):
        return current_lease().lock_name

    assert locks.redis_lock(work, get_lock_name=lambda n: f"own:{n}")(1) == "own:1"
    assert locks.redis_lock(work, on_busy="skip", acquire_time=0)("busy") is None
    assert locks.redis_lock(work, on_busy=str.upper, acquire_time=0)("busy") == "BUSY"
    with pytest.raises(ConfigurationError, match="on_busy='wait'"):
        locks.redis_lock(work, on_busy="wait")
    with pytest.raises(ConfigurationError, match="cannot be called"):
        locks.redis_lock(work, "own")


def test_busy_call_raises_by_default_without_running(locks, busy):
    @locks.redis_lock("busy", acquire_time=0)
    def work():
        raise AssertionError("it must not run")

    with pytest.raises(LockTimeoutError):
        work()


def test_busy_call_may_be_skipped_or_return_a_default(locks, busy):
    @locks.redis_lock("busy", acquire_time=0, on_busy="skip")
    def skipped(n):
        raise AssertionError("it must not run")

    @locks.redis_lock("busy", acquire_time=0, on_busy=lambda n: n * 2)
    def answered(n):
        raise AssertionError("it must not run")

    assert skipped(1) is None
    assert answered(n=21) == 42


def test_result_of_on_busy_that_would_not_run_is_refused(locks, busy):
    async def later(n):
        raise AssertionError("it must not run")

    @locks.redis_lock("busy", acquire_time=0, on_busy=lambda n: later(n))
    def work(n):
        raise AssertionError("it must not run")

    @locks.redis_lock("busy", acquire_time=0, on_busy=lambda n: later(n))
    def steps(n):
        yield n

    for call in (lambda: work(1), lambda: list(steps(1))):
        with pytest.raises(ConfigurationError, match=r"on_busy=.* returned a coroutine"):
            call()


def test_timeout_in_the_body_is_not_mistaken_for_a_busy_lock(locks, busy):
    @locks.redis_lock("outer", on_busy="skip")
    def work():
        with locks.lock("busy", acquire_time=0):
            raise AssertionError("it is held")

    with pytest.raises(LockTimeoutError):
        work()


def test_generator_holds_the_lock_during_iteration(locks):
    @locks.redis_lock("steps:{n}")
    def steps(n):
        try:
            for step in range(n):
                assert current_lease() is not None
                yield step
        finally:
            assert steps.lock_for(n).locked()
        return "done"

    iterator = steps(3)
    lock = steps.lock_for(3)

    assert not lock.locked()
    assert next(iterator) == 0
    assert lock.locked()
    assert current_lease() is None
    assert list(iterator) == [1, 2]
    assert not lock.locked()


def test_generator_releases_when_closed_or_failing(locks):
    @locks.redis_lock("steps")
    def steps():
        yield 1
        yield 2

    closed, thrown = steps(), steps()
    next(closed)
    closed.close()
    assert not steps.lock_for().locked()
    next(thrown)
    with pytest.raises(KeyError):
        thrown.throw(KeyError("x"))
    assert not steps.lock_for().locked()


def test_generator_supports_send_throw_and_return(locks):
    @locks.redis_lock("steps")
    def echo():
        got = yield "ready"
        try:
            yield got
        except KeyError:
            return "caught"

    iterator = echo()

    assert next(iterator) == "ready"
    assert iterator.send(5) == 5
    with pytest.raises(StopIteration, match="caught"):
        iterator.throw(KeyError())


def test_busy_generator_is_empty_when_skipped(locks, busy):
    @locks.redis_lock("busy", acquire_time=0, on_busy="skip")
    def skipped():
        yield 1

    @locks.redis_lock("busy", acquire_time=0, on_busy=lambda: [7, 8])
    def answered():
        yield 1

    assert list(skipped()) == []
    assert list(answered()) == [7, 8]


def test_result_that_has_not_run_yet_is_refused(locks):
    async def body():
        raise AssertionError("it must not run")

    def steps():
        yield 1

    @locks.redis_lock("hidden-coroutine")
    def hidden_coroutine():
        return body()

    @locks.redis_lock("hidden-generator")
    def hidden_generator():
        return steps()

    with pytest.raises(ConfigurationError, match="before its body runs"):
        hidden_coroutine()
    with pytest.raises(ConfigurationError, match="before its body runs"):
        hidden_generator()
    assert not hidden_coroutine.lock_for().locked()


def test_retry_outside_acquires_the_lock_again(locks):
    identifiers = []

    def twice(function):
        @functools.wraps(function)
        def wrapper(*args):
            try:
                return function(*args)
            except ValueError:
                return function(*args)

        return wrapper

    @twice
    @locks.redis_lock("x:{n}")
    def work(n):
        identifiers.append(current_lease().identifier)
        if len(identifiers) == 1:
            raise ValueError
        return n

    assert work(3) == 3
    assert len(set(identifiers)) == 2
    assert list(inspect.signature(work).parameters) == ["n"]


def test_lease_lost_in_the_body_raises_after_it(locks, client, name):
    @locks.redis_lock("x")
    def work():
        client.delete(f"{name}:x")
        client.set(f"{name}:x", "external")

    with pytest.raises(LockLostError):
        work()
    client.delete(f"{name}:x")


def test_recursive_call_raises(locks):
    @locks.redis_lock("x")
    def work():
        work()

    with pytest.raises(Exception, match="wait for itself"):
        work()
    assert not work.lock_for().locked()
