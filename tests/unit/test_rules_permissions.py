"""The lists of permissions."""

from __future__ import annotations

from typing import Any

import pytest

from redis_lock_decorators._rules.permissions import RIGHTS, commands, key_pattern, rules
from redis_lock_decorators.errors import ConfigurationError


@pytest.mark.parametrize(
    ("prefix", "pattern"),
    [
        ("sys:lock:", "sys:lock:*"),
        ("", "*"),
        ("a*b?[c]\\", "a\\*b\\?\\[c\\]\\\\*"),
        ("{x}:", "{x}:*"),
    ],
)
def test_key_pattern_escapes_the_prefix(prefix: str, pattern: str) -> None:
    assert key_pattern(prefix) == pattern


def test_rules_are_those_of_every_lock_and_of_the_uses() -> None:
    found = rules("p:", ["replicas"])

    assert found[:2] == ["~p:*", "&redis-lock:*"]
    assert found[2:] == [f"+{command.lower()}" for command in (*RIGHTS["every lock"], "WAIT")]


@pytest.mark.parametrize(("uses", "said"), [(["fence"], "'fence'"), ("fencing", "a list")])
def test_unknown_use_is_refused_with_those_that_there_are(uses: Any, said: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{said}.*'fencing', 'min_hold'"):
        rules("p:", uses)


def test_each_command_is_listed_once() -> None:
    assert len(commands()) == len(set(commands()))
    assert set(commands()) == {command for use in RIGHTS.values() for command in use}
