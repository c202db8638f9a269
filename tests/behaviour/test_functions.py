"""acquire_lock, release_lock, extend_lock on every topology."""

from __future__ import annotations

import pytest
from support.fronts import TIME, do

from redis_lock_decorators import ConfigurationError, LockError, LockNameError


def value(client, name):
    found = client.get(f"sys:lock:{name}")
    return found.decode() if isinstance(found, bytes) else found


async def test_free_lock_is_acquired_with_its_expire(front, client, conn, name):
    identifier = await do(front.package.acquire_lock(conn, name, 0, 30))

    assert value(client, name) == identifier
    assert 29_000 < client.pttl(f"sys:lock:{name}") <= 30_000


async def test_fractional_expire_is_kept(front, client, conn, name):
    await do(front.package.acquire_lock(conn, name, 0, 1.5))

    assert 1_000 < client.pttl(f"sys:lock:{name}") <= 1_500


async def test_held_lock_is_refused_after_acquire_time(front, client, conn, name):
    await do(front.package.acquire_lock(conn, name, 0, 30))
    started = TIME.now()

    refused = await do(front.package.acquire_lock(conn, name, 0.1, 30))

    assert refused is False
    assert TIME.now() - started >= 0.1


async def test_acquire_time_of_0_acquires_a_free_lock(front, client, conn, name):
    assert await do(front.package.acquire_lock(conn, name, acquire_time=0))


async def test_wait_shorter_than_delta_still_waits(front, client, conn, name):
    await do(front.package.acquire_lock(conn, name, 0, expire=0.05))

    assert await do(front.package.acquire_lock(conn, name, acquire_time=0.2, delta=5))


async def test_waiter_acquires_an_expired_lock(front, client, conn, name):
    await do(front.package.acquire_lock(conn, name, 0, expire=0.1))

    assert await do(front.package.acquire_lock(conn, name, acquire_time=None))


async def test_given_identifier_is_stored(front, client, conn, name):
    taken = await do(front.package.acquire_lock(conn, name, 0, identifier="worker-1:job-7"))

    assert taken == "worker-1:job-7" == value(client, name)


async def test_given_identifier_does_not_make_the_lock_reentrant(front, client, conn, name):
    await do(front.package.acquire_lock(conn, name, 0, identifier="same"))

    assert await do(front.package.acquire_lock(conn, name, 0, identifier="same")) is False


async def test_prefix_is_part_of_the_key(front, client, conn, name):
    identifier = await do(front.package.acquire_lock(conn, name, 0, prefix="billing:"))

    assert await do(front.package.acquire_lock(conn, name, 0))
    assert await do(
        front.package.release_lock(conn, name, identifier, prefix="billing:", method="script")
    )
    assert not client.exists(f"billing:{name}")


@pytest.mark.parametrize("method", [None, "script"])
async def test_release_deletes_our_key(front, client, conn, name, method):
    identifier = await do(front.package.acquire_lock(conn, name, 0))

    assert await do(front.package.release_lock(conn, name, identifier, method=method)) is True
    assert value(client, name) is None


@pytest.mark.parametrize("method", [None, "script"])
async def test_release_of_a_missing_lock_returns_true(front, client, conn, name, method):
    assert await do(front.package.release_lock(conn, name, "mine", method=method)) is True


@pytest.mark.parametrize("method", [None, "script"])
async def test_release_does_not_change_another_holders_lock(front, client, conn, name, method):
    identifier = await do(front.package.acquire_lock(conn, name, 0))

    assert await do(front.package.release_lock(conn, name, "mine", method=method)) is False
    assert value(client, name) == identifier


async def test_release_by_transaction_needs_a_client_with_watch(
    front, client, conn, name, topology, monkeypatch
):
    identifier = await do(front.package.acquire_lock(conn, name, 0))

    release = front.package.release_lock
    if topology.is_cluster:
        with pytest.raises(ConfigurationError, match="cluster"):
            await do(release(conn, name, identifier, method="transaction"))
    else:
        assert await do(release(conn, name, identifier, method="transaction")) is True
        assert await do(release(conn, name, identifier, method="transaction")) is True
        await do(front.package.acquire_lock(conn, name, 0))
        assert await do(release(conn, name, identifier, method="transaction")) is False


async def test_native_release_works_if_the_server_has_it(front, client, conn, name, topology):
    identifier = await do(front.package.acquire_lock(conn, name, 0))

    release = front.package.release_lock
    if not topology.has_native_release:
        with pytest.raises(ConfigurationError, match="DELIFEQ"):
            await do(release(conn, name, identifier, method="native"))
    else:
        assert await do(release(conn, name, "another", method="native")) is False
        assert await do(release(conn, name, identifier, method="native")) is True
        assert await do(release(conn, name, identifier, method="native")) is True


async def test_extend_counts_from_now_and_never_shortens(front, client, conn, name):
    identifier = await do(front.package.acquire_lock(conn, name, 0, 20))

    assert await do(front.package.extend_lock(conn, name, identifier, 30)) is True
    assert 29_000 < client.pttl(f"sys:lock:{name}") <= 30_000
    assert await do(front.package.extend_lock(conn, name, identifier, 5)) is True
    assert 29_000 < client.pttl(f"sys:lock:{name}") <= 30_000


async def test_extend_does_not_reacquire_a_lock(front, client, conn, name):
    identifier = await do(front.package.acquire_lock(conn, name, 0))
    client.delete(f"sys:lock:{name}")

    assert await do(front.package.extend_lock(conn, name, identifier, 20)) is False
    assert value(client, name) is None


async def test_extend_does_not_change_another_holders_lock(front, client, conn, name):
    await do(front.package.acquire_lock(conn, name, 0, 10))

    assert await do(front.package.extend_lock(conn, name, "mine", 200)) is False
    assert client.pttl(f"sys:lock:{name}") <= 10_000


@pytest.mark.parametrize(
    "expire", [0, -1, float("nan"), float("inf"), 10**12, True, "10", None, 1j]
)
async def test_invalid_expire_is_refused_and_locks_nothing(front, client, conn, name, expire):
    with pytest.raises(ConfigurationError, match="expire"):
        await do(front.package.acquire_lock(conn, name, 0, expire))

    assert value(client, name) is None


async def test_half_a_millisecond_is_rounded_up_to_one(front, client, conn, name):
    await do(front.package.acquire_lock(conn, name, 0, expire=0.0005))

    assert client.pttl(f"sys:lock:{name}") in (-2, 0, 1)


@pytest.mark.parametrize("acquire_time", [-1, float("nan"), True, "10"])
async def test_invalid_acquire_time_is_refused(front, client, conn, name, acquire_time):
    with pytest.raises(ConfigurationError, match="acquire_time"):
        await do(front.package.acquire_lock(conn, name, acquire_time))


@pytest.mark.parametrize("delta", [0, -1, float("nan"), True, "1", None])
async def test_invalid_delta_is_refused(front, client, conn, name, delta):
    with pytest.raises(ConfigurationError, match="delta"):
        await do(front.package.acquire_lock(conn, name, delta=delta))


async def test_none_as_client_is_refused(front, name):
    given = front.package.acquire_lock, (name, 0)
    held = front.package.release_lock, (name, "mine")
    extended = front.package.extend_lock, (name, "mine", 5)

    for function, arguments in (given, held, extended):
        with pytest.raises(ConfigurationError, match="conn=None: give a Redis client"):
            await do(function(None, *arguments))


async def test_name_in_the_place_of_the_client_is_refused(front, conn, name):
    for place in (name, name.encode()):
        for function in (front.package.acquire_lock, front.package.release_lock):
            with pytest.raises(
                ConfigurationError, match="is no Redis client: the client comes first"
            ):
                await do(function(place, conn, 0))


async def test_false_from_acquire_lock_is_refused_as_identifier(front, client, conn, name):
    with pytest.raises(ConfigurationError, match="not acquired"):
        await do(front.package.release_lock(conn, name, False))


@pytest.mark.parametrize("lock_name", [None, 42, "", b"", object()])
async def test_non_string_name_is_refused(front, client, conn, lock_name):
    with pytest.raises(LockNameError):
        await do(front.package.acquire_lock(conn, lock_name))


@pytest.mark.parametrize(
    "odd", ["with space", "line\nbreak", "{tag}x", "}{", "a" * 1_000_000, "ключ", b"\xff\xfe", "\0"]
)
async def test_any_string_is_a_valid_name(front, client, conn, name, odd):
    odd = name.encode() + odd if isinstance(odd, bytes) else name + odd

    identifier = await do(front.package.acquire_lock(conn, odd, 0))

    assert await do(front.package.acquire_lock(conn, odd, 0)) is False
    assert await do(front.package.release_lock(conn, odd, identifier)) is True
    assert await do(front.package.acquire_lock(conn, odd, 0))


async def test_key_with_other_data_is_reported_and_not_touched(front, client, conn, name):
    client.rpush(f"sys:lock:{name}", "x")

    with pytest.raises(Exception, match="WRONGTYPE"):
        await do(front.package.acquire_lock(conn, name, 1))
    with pytest.raises(LockError, match="holds other data"):
        await do(front.package.RedisLock(name, client=conn).acquire())

    assert client.llen(f"sys:lock:{name}") == 1


async def test_one_holder_at_a_time(front, client, conn, name):
    client.set(f"count:{name}", 0)

    async def count_up():
        for _ in range(5):
            identifier = await do(front.package.acquire_lock(conn, name, 60, 30, 0.001))
            seen = int(client.get(f"count:{name}"))
            await front.sleep(0.001)
            client.set(f"count:{name}", seen + 1)
            assert await do(front.package.release_lock(conn, name, identifier)) is True

    assert await front.elsewhere(*[count_up] * 4) == [None] * 4

    assert int(client.get(f"count:{name}")) == 20
