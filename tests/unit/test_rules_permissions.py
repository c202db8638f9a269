"""The list of rights, as data."""

from __future__ import annotations

import pytest

from redis_lock_decorators._rules.permissions import RIGHTS, commands, key_pattern, rules


@pytest.mark.parametrize(
    ("prefix", "pattern"),
    [
        ("sys:lock:", "sys:lock:*"),
        ("", "*"),
        ("a*b?[c]\\", "a\\*b\\?\\[c\\]\\\\*"),
        ("{x}:", "{x}:*"),
    ],
)
def test_pattern_of_keys_takes_the_prefix_for_what_it_is(prefix: str, pattern: str) -> None:
    assert key_pattern(prefix) == pattern


def test_rules_are_those_of_every_lock_and_of_the_uses() -> None:
    found = rules("p:", ["replicas"])

    assert found[:2] == ["~p:*", "&redis-lock:*"]
    assert found[2:] == [f"+{command.lower()}" for command in (*RIGHTS["every lock"], "WAIT")]


def test_each_command_comes_once() -> None:
    assert len(commands()) == len(set(commands()))
    assert set(commands()) == {command for use in RIGHTS.values() for command in use}
