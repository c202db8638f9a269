"""Wrong uses that are likely at first: each is refused where it is written, and says the cure."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import gc
import pickle
import threading
import weakref
from functools import partial
from typing import Any

import pytest
import redis
import redis.asyncio

from redis_lock_decorators import (
    ConfigurationError,
    LockNameError,
    Locks,
    RedisLock,
    redis_lock,
    release_lock,
)
from redis_lock_decorators import asyncio as tasks
from redis_lock_decorators._flow.requests import OtherData
from redis_lock_decorators._io.environment import async_from_environment, from_environment
from redis_lock_decorators._rules.shown_values import shown_value
from redis_lock_decorators.inspection import find_locks
from redis_lock_decorators.lock import Lock

ADDRESS = "redis://:geheim@host:6379/0"


def pickled(thing: Any) -> Any:
    return pickle.loads(pickle.dumps(thing))  # noqa: S301  # our own


class Store:
    @redis_lock("stock:{sku}")
    def count(self, sku: str = "bolt") -> str:
        return sku

    @classmethod
    @redis_lock("sold:{sku}")
    def sold(self, sku: str) -> str:
        return sku

    @redis_lock("load:{sku}")
    def load(cls, sku: str = "bolt") -> str:
        return sku


class Numbered(RedisLock):
    """A subclass with an attribute of its own."""

    def __init__(self, name: str, number: int) -> None:
        super().__init__(name)
        self.number = number


class Request:
    def __repr__(self) -> str:
        return "<Request GET /orders>"


def connect(url: str) -> None:
    """A factory that needs an argument."""


def test_lock_for_refuses_arguments_without_the_object():
    with pytest.raises(TypeError, match=r"Store\.count\.lock_for\(object"):
        Store().count.lock_for("nut")  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match=r"Store\.sold\.lock_for\(object"):
        Store().sold.lock_for("nut")  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match="for a class method the class"):
        Store.load.lock_for("nut")


def test_error_of_an_option_names_the_lock_of_a_decorator():
    with pytest.raises(ConfigurationError, match=r"^@redis_lock\('report'\): unknown option"):
        redis_lock("report", expires=3)  # type: ignore[call-overload]


def test_lock_that_names_its_calls_says_so_in_a_block():
    with pytest.raises(LockNameError, match=r"names the locks of calls: write lock\.call\("):
        RedisLock(get_lock_name=lambda: "x").locked()


def test_integer_that_python_does_not_write_is_refused():
    @redis_lock("load:{number}")
    def load(number: int) -> None:
        raise AssertionError

    with pytest.raises(LockNameError, match=r"load: .*an integer of very many digits"):
        load(10**5000)
    with pytest.raises(ConfigurationError, match="identifier=an object of type int"):
        release_lock(redis.Redis(), "x", 10**5000)


def test_lock_for_takes_objects_classes_and_subclasses():
    class Branch(Store):
        pass

    assert "nut" in repr(Store.count.lock_for(Branch(), "nut"))
    assert "nut" in repr(Store.load.lock_for(Branch, "nut"))


def test_lock_for_takes_objects_of_a_class_that_borrows_the_method():
    class Other:
        counted = Store.count

    assert "nut" in repr(Other.counted.lock_for(Other(), "nut"))


@pytest.mark.parametrize("option", ["on_busy", "on_lost"])
def test_error_class_instead_of_a_function_is_refused(option):
    with pytest.raises(ConfigurationError, match=f"{option}=.*ValueError"):
        redis_lock("x", **{option: ValueError})(lambda: None)


@pytest.mark.parametrize("on_lost", [threading.Event().set, lambda: None, lambda a, b, c: None])
def test_on_lost_with_other_parameters_is_refused(on_lost):
    with pytest.raises(ConfigurationError, match="two arguments"):
        RedisLock("x", on_lost=on_lost)


@pytest.mark.parametrize(
    "on_lost", [print, lambda *facts: None, partial(print, "lost"), lambda lease, why, at=0: None]
)
def test_on_lost_that_takes_two_arguments_is_accepted(on_lost):
    assert RedisLock("x", on_lost=on_lost)


def test_on_busy_that_cannot_take_the_call_is_refused():
    with pytest.raises(ConfigurationError, match="does not take the arguments"):
        redis_lock("x", on_busy=lambda: None)(lambda order: order)


@pytest.mark.parametrize(
    "on_busy", [lambda order: 1, lambda *a, **k: 1, lambda order, urgent=False: 1, print]
)
def test_on_busy_that_takes_the_call_is_accepted(on_busy):
    assert redis_lock("x", on_busy=on_busy)(lambda order, urgent=True: order)


@pytest.mark.parametrize("value", [(Request(), 1), [threading.current_thread()], {1: Request()}])
def test_objects_within_a_container_are_refused_as_names(value):
    function = redis_lock("{value}")(lambda value: None)

    with pytest.raises(LockNameError):
        function.lock_for(value)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: RedisLock("x", ADDRESS),  # type: ignore[call-overload]
        lambda: RedisLock(ADDRESS, "x"),  # type: ignore[call-overload]
        lambda: redis_lock("x", ADDRESS),
        lambda: RedisLock(redis.ConnectionPool.from_url(ADDRESS)),  # type: ignore[call-overload]
        lambda: redis_lock(redis.ConnectionPool.from_url(ADDRESS)),
        lambda: RedisLock("x", expire=ADDRESS),  # type: ignore[arg-type]
    ],
)
def test_no_error_shows_a_password(wrong):
    with pytest.raises((ConfigurationError, LockNameError)) as caught:
        wrong()

    assert "geheim" not in str(caught.value)


@pytest.mark.parametrize("source", [from_environment, async_from_environment])
def test_address_in_the_variable_of_a_function_is_not_shown(source, monkeypatch):
    monkeypatch.setenv("REDIS_LOCK_CONNECTION", ADDRESS)

    with pytest.raises(ConfigurationError, match="into REDIS_URL") as caught:
        source()

    assert "geheim" not in str(caught.value)


@pytest.mark.parametrize("source", [from_environment, async_from_environment])
def test_address_without_slashes_is_refused(source, monkeypatch):
    monkeypatch.delenv("REDIS_LOCK_CONNECTION", raising=False)
    monkeypatch.setenv("REDIS_URL", "redis:host")

    with pytest.raises(ConfigurationError, match="REDIS_URL is no Redis address"):
        source()


@pytest.mark.parametrize("source", [from_environment, async_from_environment])
def test_address_with_an_unknown_option_is_refused(source, monkeypatch):
    monkeypatch.delenv("REDIS_LOCK_CONNECTION", raising=False)
    monkeypatch.setenv("REDIS_URL", f"{ADDRESS}?geheim=1")

    with pytest.raises(ConfigurationError, match="REDIS_URL has an option") as caught:
        source()

    assert "geheim" not in f"{caught.value} {caught.value.__cause__}"


@pytest.mark.parametrize("source", [from_environment, async_from_environment])
def test_address_with_a_known_option_is_accepted(source, monkeypatch):
    monkeypatch.delenv("REDIS_LOCK_CONNECTION", raising=False)
    monkeypatch.setenv("REDIS_URL", f"{ADDRESS}?socket_timeout=2&protocol=2")

    assert source().connection_pool.connection_kwargs["socket_timeout"] == 2


@pytest.mark.parametrize("source", [from_environment, async_from_environment])
def test_function_of_the_environment_that_needs_arguments_is_refused(source, monkeypatch):
    monkeypatch.setenv("REDIS_LOCK_CONNECTION", f"{__name__}:connect")

    with pytest.raises(ConfigurationError, match=r"REDIS_LOCK_CONNECTION='.*:connect' needs arg"):
        source()


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickled])
def test_attributes_of_a_subclass_are_copied(copied):
    assert copied(Numbered("x", 7)).number == 7


def test_factory_that_needs_arguments_is_refused():
    with pytest.raises(ConfigurationError, match="get_async_redis_connection=connect needs"):
        Locks(get_async_redis_connection=connect)  # type: ignore[arg-type]


def test_factory_that_returns_no_client_is_named():
    lock = Locks(get_redis_connection=lambda: None).lock("x")  # type: ignore[arg-type,return-value]

    with pytest.raises(ConfigurationError, match=r"<lambda> returned None"):
        lock.acquire()


@pytest.mark.parametrize("name", ["timeout", "blocking_timeout", "wait_timeout"])
def test_unknown_argument_of_acquire_names_what_is_meant(name):
    with pytest.raises(ConfigurationError, match="did you mean acquire_time="):
        RedisLock("x").acquire(**{name: 3})
    with pytest.raises(ConfigurationError, match="did you mean acquire_time="):
        asyncio.run(tasks.RedisLock("x").acquire(**{name: 3}))


def test_decorator_as_a_block_says_what_to_write():
    with pytest.raises(TypeError, match="with RedisLock"), redis_lock("x"):
        pass


def test_method_of_the_class_locks_says_what_to_write():
    with pytest.raises(ConfigurationError, match="Locks"):
        Locks.redis_lock("x")  # type: ignore[call-overload]


def test_error_about_other_data_survives_its_recreation():
    error = OtherData("x", "WRONGTYPE")

    assert str(type(error)(*error.args)) == str(error)


@pytest.mark.parametrize("option", ["prefix", "replicas", "expire", "acquire_time"])
def test_huge_numbers_are_refused(option):
    with pytest.raises(ConfigurationError):
        RedisLock("x", **{option: 10**5000})


@pytest.mark.parametrize("option", ["timeout", "sleep", "blocking_timeout"])
def test_huge_numbers_of_the_drop_in_are_no_errors_of_python(option):
    with contextlib.suppress(ConfigurationError):
        Lock(redis.Redis(port=1), "x", **{option: 10**5000})


@pytest.mark.parametrize(
    "make",
    [partial(Lock, redis.Redis(port=1)), partial(tasks.lock.Lock, redis.asyncio.Redis(port=1))],
)
def test_drop_in_that_is_dropped_is_freed_at_once(make):
    """Otherwise the lock that it holds is renewed until the garbage collector runs."""
    gc.disable()
    try:
        lock = make("x", timeout=1)
        freed = weakref.ref(lock)
        del lock
        assert freed() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("wrong", [None, 3, "report"])
def test_call_of_what_is_no_function_is_refused(wrong):
    with pytest.raises(ConfigurationError, match="give a function"):
        RedisLock("x").call(wrong)
    with pytest.raises(ConfigurationError, match="give a function"):
        asyncio.run(tasks.RedisLock("x").call(wrong))


@pytest.mark.parametrize("wrong", [None, 3, b"report"])
def test_pattern_that_is_no_text_is_refused(wrong):
    with pytest.raises(ConfigurationError, match="pattern"):
        next(find_locks(redis.Redis(port=1), wrong))


@pytest.mark.parametrize("name", ["x~:abc", "\ud800"])
def test_name_that_no_lock_can_have_is_refused_at_decoration(name):
    with pytest.raises(LockNameError):
        redis_lock(name)(lambda: None)


def test_shown_values_are_short():
    assert shown_value("x" * 100) == "'" + "x" * 78 + "…"
    assert shown_value(object()) == "an object of type object"


@redis_lock("report")
async def report() -> None:
    """A function that takes a lock of asyncio."""


@pytest.mark.parametrize(
    "begin",
    [
        lambda: tasks.RedisLock("report").acquire(),
        lambda: tasks.RedisLock("report").__aenter__(),
        lambda: tasks.acquire_lock(redis.asyncio.Redis(), "report"),
        report,
    ],
    ids=["acquire", "block", "function", "decorator"],
)
def test_other_event_loops_than_those_of_asyncio_are_refused(begin: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"event loop of asyncio: under Trio"):
        begin().send(None)
