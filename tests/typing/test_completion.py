"""Editors complete the options by name, and the documentation lists them."""

from __future__ import annotations

import inspect
import re
from typing import Any

import pytest

from redis_lock_decorators import Locks, RedisLock
from redis_lock_decorators._shared.settings import OPTION_NAMES
from redis_lock_decorators.asyncio import RedisLock as AsyncRedisLock

CALLS = {
    'redis_lock("x", ': "from redis_lock_decorators import redis_lock",
    'RedisLock("x", ': "from redis_lock_decorators import RedisLock",
    'AsyncRedisLock("x", ': "from redis_lock_decorators.asyncio import RedisLock as AsyncRedisLock",
    "Locks(": "from redis_lock_decorators import Locks",
    "configure(": "from redis_lock_decorators import configure",
    'Locks().redis_lock("x", ': "from redis_lock_decorators import Locks",
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("option", sorted(OPTION_NAMES))
def test_every_option_is_completed(call: str, option: str) -> None:
    jedi = pytest.importorskip("jedi")
    begun = f"{CALLS[call]}\n{call}{option[:3]}"

    assert f"{option}=" in [found.name for found in jedi.Script(begun).complete()]


@pytest.mark.parametrize("thing", [RedisLock, AsyncRedisLock, Locks.redis_lock])
def test_documentation_names_every_option(thing: Any) -> None:
    text = inspect.getdoc(thing) or ""

    assert [name for name in OPTION_NAMES if not re.search(rf"\b{name}\b", text)] == []
