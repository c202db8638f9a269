"""A credential provider that fails while a release opens a connection."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pytest
import redis
import redis.asyncio

if int(redis.__version__.partition(".")[0]) < 5:
    pytest.skip("older clients have no credential providers", allow_module_level=True)

from redis.credentials import CredentialProvider

from redis_lock_decorators import LockLostError

USER = "hook-errors"


class VaultError(Exception):
    """An error of the program's credential provider."""


@dataclass(frozen=True)
class FrozenVaultError(VaultError):
    """One that refuses to be changed."""

    why: str


class Vault(CredentialProvider):
    """Returns a password until it is sealed."""

    is_sealed = False

    def __init__(self, error: type[VaultError]) -> None:
        self.error = error

    def get_credentials(self) -> tuple[str, str]:
        if self.is_sealed:
            raise self.error("it is sealed")
        return USER, "secret"

    async def get_credentials_async(self) -> tuple[str, str]:
        return self.get_credentials()


@pytest.fixture
def direct(server: Any) -> Iterator[Any]:
    with closing(server.client()) as client:
        client.execute_command("ACL", "SETUSER", USER, "on", ">secret", "~*", "&*", "+@all")
        yield client
        client.execute_command("ACL", "DELUSER", USER)


@pytest.fixture(params=[VaultError, FrozenVaultError])
def vault(request: pytest.FixtureRequest) -> Vault:
    return Vault(request.param)


@pytest.fixture
def lock(front: Any, server: Any, name: str, vault: Vault, direct: Any) -> Any:
    world = redis.asyncio if front.package.__name__.endswith("asyncio") else redis
    client = world.Redis(host=server.host, port=server.port, credential_provider=vault)
    return front.package.RedisLock(name, client=client, expire=2, acquire_time=0)


def seal(vault: Vault, direct: Any) -> None:
    vault.is_sealed = True
    direct.execute_command("CLIENT", "KILL", "USER", USER)


async def test_block_that_succeeded_raises_nothing(
    front: Any, lock: Any, vault: Vault, direct: Any
) -> None:
    async with front.held(lock):
        seal(vault, direct)


async def test_exception_of_the_block_goes_on(
    front: Any, lock: Any, vault: Vault, direct: Any
) -> None:
    with pytest.raises(KeyError, match="the block's"):
        async with front.held(lock):
            seal(vault, direct)
            raise KeyError("the block's")


async def test_loss_is_raised(front: Any, lock: Any, vault: Vault, direct: Any) -> None:
    with pytest.raises(LockLostError, match="VaultError"):
        async with front.held(lock):
            seal(vault, direct)
            await front.sleep(2.5)


async def test_acquisition_raises_the_error_of_the_provider(
    front: Any, lock: Any, vault: Vault
) -> None:
    vault.is_sealed = True

    with pytest.raises(VaultError):
        async with front.held(lock):
            pass
