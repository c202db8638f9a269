"""Unknown options are refused, with the option that was probably meant."""

from typing import Any

import pytest

from redis_lock_decorators import ConfigurationError, Locks, RedisLock
from redis_lock_decorators._rules.misnamed import refuse_unknown
from redis_lock_decorators.asyncio import RedisLock as AsyncRedisLock

KNOWN = ("expire", "acquire_time", "auto_renew", "delta", "wait")


def problem(*given: str) -> str:
    with pytest.raises(ConfigurationError) as caught:
        refuse_unknown(given, KNOWN)
    return str(caught.value)


def test_known_options_are_accepted() -> None:
    assert refuse_unknown(KNOWN, KNOWN) is None


@pytest.mark.parametrize(
    ("unknown", "meant"),
    [
        *(("timeout", "expire="), ("timeout", "acquire_time="), ("blocking_timeout", "acquire_")),
        *(("ttl", "expire="), ("blocking", "acquire_time=0"), ("sleep", "delta=")),
        *(("nowait", "acquire_time=0"), ("lease_seconds", "expire="), ("heartbeat", "auto_renew=")),
        *(("default", "on_busy="), ("skip", "on_busy="), ("queue", "wait="), ("fence", "fencing=")),
        *((name, "acquire_time=") for name in ("retry", "retries", "retry_count")),
        *((name, "client=") for name in ("url", "redis_url", "host", "db")),
        *(("auto_renewal", "auto_renew="), ("redis_client", "client="), ("token", "identifier")),
    ],
)
def test_option_name_of_another_library_is_translated(unknown: str, meant: str) -> None:
    assert f"unknown option {unknown} (did you mean" in problem(unknown)
    assert meant in problem(unknown)


@pytest.mark.parametrize(
    ("unknown", "meant"),
    [("expires", "expire="), ("acquiretime", "acquire_time="), ("wiat", "wait=")],
)
def test_misspelt_option_is_recognised(unknown: str, meant: str) -> None:
    assert f"did you mean {meant}?" in problem(unknown)


def test_unknown_option_without_a_similar_one_is_only_refused() -> None:
    others = "lock_name, get_lock_name, client, get_redis_connection, on_busy"
    expected = f"unknown option zzz; the options are {', '.join(sorted(KNOWN))} (and {others})"
    assert problem("zzz") == expected


@pytest.mark.parametrize("unknown", ["signal_expire", "factor", "masters", "drift"])
def test_name_that_is_only_a_little_similar_is_not_suggested(unknown: str) -> None:
    assert "did you mean" not in problem(unknown)


def test_option_without_a_counterpart_is_explained() -> None:
    assert problem("thread_local").startswith(
        "unknown option thread_local (any thread may use a lease); the options are"
    )


@pytest.mark.parametrize("kind", [RedisLock, AsyncRedisLock])
def test_duration_in_second_place_is_explained(kind: type) -> None:
    for given in (30, 2.5):
        with pytest.raises(ConfigurationError, match=f"given by name, as in expire={given}$"):
            kind("x", given)
    with pytest.raises(ConfigurationError, match=r"for a text use lock_name"):
        kind("x", "y")
    with pytest.raises(ConfigurationError, match=r"get_lock_name, not both"):
        kind("x", str)


def test_all_unknown_options_are_in_one_message() -> None:
    message = problem("zzz", "expire", "expires")

    assert (
        "unknown option expires (did you mean expire=?); unknown option zzz; the options" in message
    )


def test_argument_given_in_the_wrong_place_is_explained() -> None:
    assert "unknown option client: it cannot be given here" in problem("client")


def test_option_of_the_decorator_only_is_explained() -> None:
    assert "unknown option on_busy here: only @redis_lock takes it" in problem("on_busy")


@pytest.mark.parametrize("kind", [RedisLock, AsyncRedisLock])
def test_lock_points_to_attributes_of_the_lease(kind: type) -> None:
    with pytest.raises(AttributeError, match=r"'release': the lease has it.*lock.acquire\(\)"):
        kind("x").release()
    with pytest.raises(AttributeError, match=r"no attribute 'zzz'$"):
        kind("x").zzz  # noqa: B018  # reading it is the test
    assert not hasattr(kind("x"), "extend")


@pytest.mark.parametrize("kind", [RedisLock, AsyncRedisLock])
def test_repr_tells_two_names_from_one(kind: type) -> None:
    assert repr(kind(["a", "b"])) == "<RedisLock 'a', 'b'>"
    assert repr(kind("a, b")) == "<RedisLock 'a, b'>"


@pytest.mark.parametrize("kind", [RedisLock, AsyncRedisLock, Locks().lock, Locks().async_lock])
def test_errors_of_options_name_the_lock(kind: Any) -> None:
    for options in ({"expire": -1}, {"timeout": 1}, {"get_lock_name": 5}, {"client": 5}):
        with pytest.raises(ConfigurationError, match=r"^RedisLock\('order:7'\): "):
            kind("order:7", **options)
    with pytest.raises(ConfigurationError, match=r"^RedisLock\(\['a', 'b'\]\): expire="):
        kind(["a", "b"], expire=-1)
    with pytest.raises(ConfigurationError, match=r"^expire="):
        kind(get_lock_name=str, expire=-1)
