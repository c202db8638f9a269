"""Enum members: the same text in every Python version."""

import dataclasses
import enum
import inspect
import re
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from redis_lock_decorators._rules.enums import flag_text
from redis_lock_decorators._rules.templates import compiled
from redis_lock_decorators.errors import LockNameError


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


@dataclasses.dataclass
class Mail:
    right: enum.Flag


class Label(Mail):
    def __str__(self) -> str:
        return f"rights: {self.right!s}"


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


class Gap(enum.IntFlag):
    HIGH = 4
    LOW = 1


class Quiet(enum.Flag):
    A = 1
    B = 2

    def __repr__(self) -> str:
        return "quiet"


@pytest.mark.parametrize(
    ("member", "text"),
    [(~Step.ONE, "2"), (~Gap.HIGH, "3"), (~Gap(0), "7"), (~Step(8), "7"), (~(~Step.TWO), "2")],
)
def test_inverted_number_has_the_same_text_in_every_python(member: Any, text: str) -> None:
    for template in ("{a}", "{a!s}", "{a:}", "{a.value}"):
        assert written(template, member) == text


UNNAMED = [Right.WRITE | Right.GRANT, Right(0), Step(3), Step(0), Step(8), ~Gap.HIGH]


@pytest.mark.parametrize("member", UNNAMED, ids=repr)
@pytest.mark.parametrize(
    ("template", "made"),
    [
        *((template, lambda member: member) for template in ("{a!r}", "{a!a:>40}")),
        *(("{a}", made) for made in (lambda member: [member], lambda member: (1, [member]))),
        *(("{a}", Mail), ("{a!s}", Mail), ("{a:}", Mail)),
    ],
)
def test_unnamed_flag_inside_an_object_is_refused(template: str, made: Any, member: Any) -> None:
    with pytest.raises(LockNameError, match=r"written differently by other Python versions: name"):
        written(template, made(member))


@pytest.mark.parametrize("member", UNNAMED, ids=repr)
def test_name_of_an_unnamed_flag_is_refused(member: Any) -> None:
    with pytest.raises(LockNameError, match=r"a flag of several members, differs .* use its value"):
        written("{a.name}", member)


def test_str_of_an_unnamed_flag_in_a_text_is_refused() -> None:
    with pytest.raises(LockNameError, match="written differently"):
        written("{a}", Label(Right.WRITE | Right.GRANT))
    assert written("{a}", Label(Right.READ)) == "rights: Right.READ"


@pytest.mark.parametrize(
    ("template", "value", "text"),
    [
        *(("{a}", [Right.READ, Right.BOTH], "[<Right.READ: 1>, <Right.BOTH: 3>]"),),
        *(("{a!r}", Right.BOTH, "<Right.BOTH: 3>"), ("{a.name}", Right.BOTH, "BOTH")),
        *(("{a!r}", Quiet(3), "quiet"), ("{a}", [Quiet(3)], "[quiet]")),
        *(("{a}", re.I | re.M, "re.IGNORECASE|re.MULTILINE"), ("{a:>3}", re.I | re.M, " 10")),
        *(("{a.name}", SimpleNamespace(name="n"), "n"), ("{a.value}", Right(6), "6")),
        *(("{a[0]}", [Right(6)], "Right.WRITE|GRANT"), ("{a.x}", SimpleNamespace(x=Step(3)), "3")),
    ],
)
def test_named_flag_is_written_anywhere(template: str, value: Any, text: str) -> None:
    assert written(template, value) == text


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
