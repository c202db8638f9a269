"""Sources of clients: configure, Locks, the hook, the environment."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import types
import weakref

import pytest
import redis

import redis_lock_decorators
from redis_lock_decorators import ConfigurationError, Locks, RedisLock, current_lease, redis_lock
from redis_lock_decorators._shared.settings import DEFAULT, Settings
from redis_lock_decorators.asyncio import RedisLock as AsyncRedisLock

#: The garbage of other tests is collected too.
collects_garbage = pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)


@pytest.fixture(autouse=True)
def fresh_settings(monkeypatch):
    """The module-level names as in a new process."""
    for attribute, value in vars(Settings()).items():
        monkeypatch.setattr(DEFAULT, attribute, value)
    monkeypatch.delenv("REDIS_URL", raising=False)
    monkeypatch.delenv("REDIS_LOCK_CONNECTION", raising=False)


def test_configure_gives_the_module_level_names_a_connection_and_defaults(server, name):
    @redis_lock("{n}")
    def decorated_before(n):
        return current_lease().key, current_lease().expire

    lock_before = RedisLock(name, expire=5)

    redis_lock_decorators.configure(lambda: server.client(), prefix="late:", expire=30)

    assert decorated_before(name) == (f"late:{name}", 30)
    with lock_before as lease:
        assert (lease.key, lease.expire) == (f"late:{name}", 5)


def test_configure_with_a_wrong_option_changes_nothing(server, name):
    redis_lock_decorators.configure(lambda: server.client(), expire=30)

    with pytest.raises(ConfigurationError):
        redis_lock_decorators.configure(expire=-1, prefix="x:")
    with pytest.raises(ConfigurationError, match="timeout"):
        redis_lock_decorators.configure(timeout=3)

    with RedisLock(name) as lease:
        assert (lease.key, lease.expire) == (f"sys:lock:{name}", 30)


def test_factory_is_called_once_at_first_use_by_many_threads(server, name):
    calls = []

    def factory():
        calls.append(1)
        return server.client()

    locks = Locks(factory)

    @locks.redis_lock("{n}", acquire_time=30)
    def work(n):
        pass

    lock = locks.lock(name)
    assert calls == []

    threads = [threading.Thread(target=work, args=(f"{name}:{n}",)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not lock.locked()

    assert calls == [1]


def test_two_projects_share_nothing(server, name):
    billing = Locks(lambda: server.client(db=1), prefix="billing:", expire=5)
    shop = Locks(lambda: server.client(db=2), prefix="shop:")
    shop.configure(expire=7)

    with billing.lock(name) as ours, shop.lock(name) as theirs:
        assert (ours.key, ours.expire) == (f"billing:{name}", 5)
        assert (theirs.key, theirs.expire) == (f"shop:{name}", 7)
        assert server.client(db=1).exists(ours.key)
        assert not server.client(db=2).exists(ours.key)


def test_lock_with_its_own_factory(server, name):
    lock = RedisLock(name, get_redis_connection=lambda: server.client(db=3))

    with lock as lease:
        assert server.client(db=3).get(lease.key).decode() == lease.identifier


def test_url_of_the_environment(server, name, monkeypatch):
    monkeypatch.setenv("REDIS_URL", server.url)

    with RedisLock(name) as lease:
        assert server.client().exists(lease.key)


def test_factory_of_the_environment_precedes_its_url(server, name, monkeypatch):
    module = types.ModuleType("a_project")
    module.connect = lambda: server.client()
    monkeypatch.setitem(sys.modules, "a_project", module)
    monkeypatch.setenv("REDIS_LOCK_CONNECTION", "a_project:connect")
    monkeypatch.setenv("REDIS_URL", "redis://localhost:1/0")

    with RedisLock(name) as lease:
        assert server.client().exists(lease.key)


def test_environment_factory_for_the_other_kind_of_client_is_reported(server, monkeypatch):
    module = types.ModuleType("a_project")
    module.connect = lambda: server.client()
    monkeypatch.setitem(sys.modules, "a_project", module)
    monkeypatch.setenv("REDIS_LOCK_CONNECTION", "a_project:connect")
    message = r"REDIS_LOCK_CONNECTION='a_project:connect': .* a blocking .*threads or for asyncio"

    async def work():
        await AsyncRedisLock("x").acquire()

    with pytest.raises(ConfigurationError, match=message):
        asyncio.run(work())


@pytest.mark.parametrize(
    "named", ["no_such_module:connect", "sys:no_such_name", "os.path", ":connect", "sys:version"]
)
def test_environment_that_names_no_factory_is_reported(monkeypatch, named):
    monkeypatch.setenv("REDIS_LOCK_CONNECTION", named)

    with pytest.raises(ConfigurationError, match=r"REDIS_LOCK_CONNECTION.*(write|name) ") as caught:
        RedisLock("x").acquire()

    assert "posixpath" not in str(caught.value)


def test_invalid_url_is_reported_without_its_password(monkeypatch):
    monkeypatch.setenv("REDIS_URL", "redis://:p#s3cret@localhost:6379/0")

    with pytest.raises(ConfigurationError, match="REDIS_URL") as caught:
        RedisLock("x").acquire()

    assert "s3cret" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


def test_object_that_is_no_client_is_reported():
    for wrong in ("redis://localhost", 42, object()):
        with pytest.raises(ConfigurationError, match="no Redis client"):
            RedisLock("x", client=wrong).acquire()
        with pytest.raises(ConfigurationError):
            Locks(lambda wrong=wrong: wrong).lock("x").acquire()


def test_object_that_is_no_factory_is_reported(server):
    with pytest.raises(ConfigurationError, match="cannot be called"):
        Locks(server.client())
    with pytest.raises(ConfigurationError, match="not both"):
        RedisLock("x", client=server.client(), get_redis_connection=server.client)


@pytest.mark.skipif(int(redis.__version__[0]) < 4, reason="redis-py 3.5 has no asyncio")
def test_asyncio_client_in_blocking_code_is_reported():
    import redis.asyncio

    with pytest.raises(ConfigurationError, match="asyncio client"):
        RedisLock("x", client=redis.asyncio.Redis()).acquire()


@collects_garbage
def test_client_is_garbage_collected_with_its_last_user(server, name):
    client = server.client()
    with RedisLock(name, client=client):
        pass
    gone = weakref.ref(client)

    del client
    gc.collect()

    assert gone() is None


@collects_garbage
def test_factory_of_one_lock_is_garbage_collected_with_it(server, name):
    made = []

    def use():
        def factory():
            client = server.client()
            made.append(weakref.ref(client))
            return client

        with RedisLock(name, get_redis_connection=factory):
            pass

    use()
    gc.collect()

    assert made[0]() is None


def test_wrapped_client_sends_every_command(server, name):
    seen = []

    class Traced(redis.Redis):
        def execute_command(self, *args, **options):
            seen.append(args[0])
            return super().execute_command(*args, **options)

    with RedisLock(name, client=Traced(port=server.port)):
        pass

    assert [command for command in seen if command.startswith("EVAL")][-1:] == ["EVALSHA"]
    assert len(seen) >= 2


def test_client_wrapped_after_its_first_use_sends_every_command(server, name, monkeypatch):
    client, seen = server.client(), []
    with RedisLock(name, client=client):
        pass
    execute = client.execute_command
    monkeypatch.setattr(
        client,
        "execute_command",
        lambda *args, **options: (seen.append(args[0]), execute(*args))[1],
    )

    with RedisLock(name, client=client):
        pass

    assert seen == ["EVALSHA", "EVALSHA"]


def test_number_of_private_connections_does_not_grow_with_use(server, name):
    client = server.client()
    lock = RedisLock(name, client=client, acquire_time=60, delta=0.002)
    before = len(client.client_list())

    def work():
        for _ in range(5):
            with lock:
                pass

    threads = [threading.Thread(target=work) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    # Sixteen idle connections, one for the subscription and one for renewals.
    assert len(client.client_list()) - before <= 18


def test_client_is_accepted_in_place_of_a_hook(server, name):
    client = server.client()

    with Locks(client=client, prefix="given:").lock(name) as lease:
        assert client.get(f"given:{name}") == lease.identifier.encode()

    redis_lock_decorators.configure(client=client, prefix="configured:")
    with RedisLock(name) as lease:
        assert client.get(f"configured:{name}") == lease.identifier.encode()


def test_asyncio_client_is_accepted_in_place_of_a_hook(server, name):
    library = pytest.importorskip("redis.asyncio")

    async def main():
        client = library.Redis(port=server.port)
        async with client, Locks(client=client).async_lock(name) as lease:
            return await client.get(lease.key), lease.identifier.encode()

    held, identifier = asyncio.run(main())
    assert held == identifier


@pytest.mark.parametrize("hook", ["get_redis_connection", "get_async_redis_connection"])
def test_client_and_hook_together_are_refused(server, hook):
    with pytest.raises(ConfigurationError, match="not both"):
        Locks(client=server.client(), **{hook: server.client})


@pytest.mark.parametrize("client", ["redis://localhost", redis.Redis.from_url])
def test_object_that_is_no_client_is_refused_in_place_of_a_hook(client):
    with pytest.raises(ConfigurationError, match="no Redis client"):
        Locks(client=client)


@pytest.mark.parametrize("given", ["hook", "client"])
def test_blocking_code_of_an_asyncio_project_uses_no_default_server(server, given):
    library = pytest.importorskip("redis.asyncio")
    client = library.Redis(port=server.port)
    options = (
        {"get_async_redis_connection": lambda: client} if given == "hook" else {"client": client}
    )

    with pytest.raises(ConfigurationError, match="get_redis_connection=… with a function"):
        Locks(**options).lock("x").acquire()
