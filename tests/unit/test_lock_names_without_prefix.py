"""Without a prefix the key of a lock is its name, as that of redis-py's lock."""

from __future__ import annotations

import unicodedata
from typing import Any

import pytest
import redis

from redis_lock_decorators import LockNameError, RedisLock, acquire_lock
from redis_lock_decorators._rules.keys import key_of

DECOMPOSED = unicodedata.normalize("NFD", "café")


@pytest.mark.parametrize("name", [DECOMPOSED, DECOMPOSED.encode(), ["plain", DECOMPOSED]])
def test_name_whose_key_would_be_another_text_is_refused(name: Any) -> None:
    with pytest.raises(LockNameError, match="not in Unicode NFC"):
        RedisLock(name, prefix="", client=redis.Redis())


def test_functions_refuse_it_too() -> None:
    with pytest.raises(LockNameError, match="not in Unicode NFC"):
        acquire_lock(redis.Redis(), DECOMPOSED, prefix="")


@pytest.mark.parametrize("name", ["café", "café".encode(), "plain", b"\xff"])
def test_other_names_are_the_keys(name: Any) -> None:
    lock = RedisLock(name, prefix="", client=redis.Redis())

    assert lock._own_keys() == (name.encode() if isinstance(name, str) else name,)


def test_spellings_agree_with_a_prefix() -> None:
    locks = [RedisLock(name, client=redis.Redis()) for name in (DECOMPOSED, "café")]

    assert locks[0]._own_keys() == locks[1]._own_keys()


def test_long_name_is_not_hashed_without_a_prefix() -> None:
    assert key_of("", "x" * 600) == b"x" * 600
    assert len(key_of("p:", "x" * 600)) < 600
