"""Enum members: the same text in every Python version."""

import enum
import inspect
import sys
from typing import Any

import pytest

from redis_lock_decorators._rules.enums import flag_text
from redis_lock_decorators._rules.templates import compiled


class Right(enum.Flag):
    READ = 1
    WRITE = 2
    GRANT = 4
    BOTH = 3
    LIST = 1


class Falling(enum.Flag):
    HIGH = 4
    LOW = 1


class Named(enum.Flag):
    NONE = 0
    SOME = 1


class Step(enum.IntFlag):
    ONE = 1
    TWO = 2


class Kind(enum.IntEnum):
    FIRST = 1

    def __str__(self) -> str:
        return self.name


class Formatted(enum.Enum):
    A = 1

    def __format__(self, spec: str) -> str:
        return f"own{spec}"


class Spoken(str, enum.Enum):
    A = "a"

    def __str__(self) -> str:
        return "spoken"


FLAGS = [
    (Right.READ, "Right.READ"),
    (Right(0), "Right(0)"),
    (Right.READ | Right.WRITE, "Right.BOTH"),
    (Right.WRITE | Right.GRANT, "Right.WRITE|GRANT"),
    (Right.BOTH | Right.GRANT, "Right.READ|WRITE|GRANT"),
    (~Right.READ, "Right.WRITE|GRANT"),
    (Falling.LOW | Falling.HIGH, "Falling.HIGH|LOW"),
    (Named(0), "Named.NONE"),
]


def written(template: str, member: object) -> str:
    return compiled(template, inspect.signature(lambda a: None))((member,), {})


@pytest.mark.parametrize(("member", "text"), FLAGS)
def test_flag_has_the_same_text_in_every_python(member: Any, text: str) -> None:
    assert written("{a}", member) == written("{a!s}", member) == text
    assert written("{a!s:>3}", member) == written("{a:>3}", member) == text


@pytest.mark.parametrize(("member", "text"), FLAGS)
def test_enum_text_in_an_old_python_is_that_of_a_newer_one(member: Any, text: str) -> None:
    assert flag_text(member) == text
    if sys.version_info >= (3, 11):
        assert str(member) == text


@pytest.mark.parametrize(
    ("template", "member", "text"),
    [
        *(("{a}", Kind.FIRST, "FIRST"), ("{a:>2}", Kind.FIRST, " 1"), ("{a:02}", Step(3), "03")),
        *(("{a:!}", Formatted.A, "own!"), ("{a!s:>12}", Formatted.A, " Formatted.A")),
        *(("{a:>7}", Spoken.A, " spoken"), ("{a!s}", Spoken.A, "spoken"), ("{a}", Spoken.A, "a")),
    ],
)
def test_text_and_format_of_the_enum_class_are_used(template: str, member: Any, text: str) -> None:
    assert written(template, member) == text
