"""A connection whose set-up an exception of the program interrupts: no request of a lock uses it.

redis-py keeps it open in its pool, without authentication and in database 0.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import closing, suppress
from types import SimpleNamespace
from typing import Any

import pytest
import redis
from support.fronts import do, wrap

if int(redis.__version__.partition(".")[0]) < 5:
    pytest.skip("older clients have no credential providers", allow_module_level=True)

from redis.credentials import CredentialProvider

from redis_lock_decorators import LockTimeoutError
from redis_lock_decorators._io.clock import monotonic
from redis_lock_decorators._io.transport.asyncio_client import ClientTransport
from redis_lock_decorators._io.transport.client_calls import replies_of
from redis_lock_decorators._io.transport.watch_pipeline import TaskWatch
from redis_lock_decorators.inspection import lock_status

#: A number that is not redis-py's default.
DATABASE = 1


class VaultError(Exception):
    """An error of the program's credential provider."""


class Alarm(BaseException):
    """An exception of a signal handler."""


class Vault(CredentialProvider):
    """Fails once, with ``error``, or pauses once, for ``pause`` seconds."""

    error: type[BaseException] | None = None
    pause = 0.0

    def get_credentials(self) -> tuple[()]:
        error, self.error = self.error, None
        if error is not None:
            raise error
        return ()

    async def get_credentials_async(self) -> tuple[()]:
        pause, self.pause = self.pause, 0.0
        await asyncio.sleep(pause)
        return self.get_credentials()


@pytest.fixture
def vault() -> Vault:
    return Vault()


@pytest.fixture(params=["ConnectionPool", "BlockingConnectionPool"])
def client(request: Any, front: Any, server: Any, vault: Vault) -> Any:
    """A client whose own methods the lock uses."""
    client = front.client(server)
    module = redis.asyncio if front.name == "asyncio" else redis
    client.connection_pool = getattr(module, request.param)(
        host=server.host, port=server.port, db=DATABASE, credential_provider=vault
    )
    wrap(client)
    return client


@pytest.fixture
def database(server: Any) -> Iterator[Any]:
    with closing(redis.Redis(host=server.host, port=server.port, db=DATABASE)) as client:
        yield client


interrupted = pytest.mark.parametrize("error", [VaultError, Alarm, asyncio.CancelledError])


async def seal(client: Any, vault: Vault, error: type[BaseException]) -> None:
    """Have the next request open a connection, which fails."""
    vault.error = error
    await do(client.connection_pool.disconnect())


async def is_in_order(client: Any, database: Any, key: str) -> bool:
    """Whether the client's next request is sent to its database."""
    await do(client.execute_command("SET", key, "1"))
    return bool(database.exists(key))


async def lock_again(front: Any, client: Any, name: str) -> None:
    async with front.held(front.package.RedisLock(name, client=client, acquire_time=0)):
        pytest.fail("there is another holder")


@interrupted
async def test_lock_has_one_holder(front, client, vault, database, name, error):
    database.set(f"sys:lock:{name}", "other", px=60_000)
    vault.error = error

    with pytest.raises((LockTimeoutError, error)):
        await lock_again(front, client, name)
    with pytest.raises(LockTimeoutError):
        await lock_again(front, client, name)

    assert vault.error is None


@interrupted
async def test_commands_that_were_sent_together(front, client, vault, database, name, error):
    commands = [("GET", b"a"), ("GET", b"b")]
    await seal(client, vault, error)

    with pytest.raises(error):
        if front.name == "asyncio":
            await ClientTransport(client).send_batch(commands, monotonic() + 60)
        else:
            replies_of(client, commands)

    assert await is_in_order(client, database, name)


@interrupted
async def test_release_by_a_transaction(front, client, vault, database, name, error):
    lock = front.package.RedisLock(name, client=client, release_method="transaction")
    lease = await do(lock.acquire())
    await seal(client, vault, error)

    with suppress(error):
        await do(lease.release())

    assert vault.error is None
    assert await is_in_order(client, database, f"{name}:after")


async def test_transaction_whose_time_is_over(front, client, vault, database, name):
    if front.name == "blocking":
        return  # no other code can end it
    vault.pause = 60.0

    with pytest.raises(redis.TimeoutError):
        async with TaskWatch(client, SimpleNamespace(has_transacted=True), monotonic()) as watched:
            await watched.holder(name.encode())

    assert not vault.pause
    assert await is_in_order(client, database, name)


@interrupted
async def test_inspection_of_a_lock(front, client, vault, database, name, error):
    if front.name == "asyncio":
        return  # it is for blocking clients
    await seal(client, vault, error)

    with pytest.raises(error):
        lock_status(client, name)

    assert await is_in_order(client, database, name)
