"""Arguments as text: refused unless the text is the same in every process."""

import asyncio
import enum
import functools
import inspect
import io
import logging
import pathlib
import subprocess
import sys
import uuid
import weakref
from collections import ChainMap, UserDict, deque
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from types import MappingProxyType, SimpleNamespace
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.texts import Bare, Query, Spoken

from redis_lock_decorators._rules.name_values import as_text, escaped, stable_text
from redis_lock_decorators._rules.templates import compiled
from redis_lock_decorators.errors import LockNameError

#: Without the character that escapes braces.
TEXTS = st.text(st.characters(exclude_characters="%"))


class Numbered:
    def __repr__(self) -> str:
        return f"<W {id(self):#x}>"


class Request:
    def __repr__(self) -> str:
        return "<Request: GET '/articles'>"


class Colour(enum.Enum):
    RED = "r"


class Text(str, enum.Enum):
    RED = "r"


class Number(enum.IntEnum):
    ONE = 1


class Right(enum.IntFlag):
    READ = 4


class Point(NamedTuple):
    x: object
    y: object


@pytest.mark.parametrize(
    ("value", "text"),
    [
        *(("a b", "a b"), ("", ""), (b"abc", "abc"), (b"\xff", "\udcff"), ("ключ", "ключ")),
        *((1, "1"), (-1, "-1"), (10**20, "1" + "0" * 20), (1.5, "1.5"), (True, "True")),
        *((None, "None"), (Decimal("1.50"), "1.50"), (1 + 2j, "(1+2j)")),
        *((Colour.RED, "Colour.RED"), (Text.RED, "r"), (Spoken(), "order 7")),
        *((date(2026, 1, 2), "2026-01-02"), (timedelta(hours=1), "1:00:00")),
        (datetime(2026, 1, 2, 3, 4, tzinfo=timezone.utc), "2026-01-02 03:04:00+00:00"),
        (uuid.UUID(int=7), "00000000-0000-0000-0000-000000000007"),
        *(((1, "a"), "(1, 'a')"), ([1, [2]], "[1, [2]]"), (range(3), "range(0, 3)")),
        (pathlib.PurePosixPath("/a/b"), "/a/b"),
    ],
)
def test_stable_value_gives_its_text(value: object, text: str) -> None:
    assert as_text(value) == text


@pytest.mark.parametrize(
    "value",
    [
        Bare(),
        Numbered(),
        [Numbered()],
        (1, [ValueError(Numbered())]),
        object(),
        Bare().method,
        lambda: None,
        test_stable_value_gives_its_text,
        functools.partial(lambda: None),
        [].append,
        (number for number in [1]),
        memoryview(b"abc"),
        weakref.ref(Bare),
        io.BytesIO(),
        asyncio.Lock(),
        (lambda: None).__code__,
        Query(Bare()),
        Point(1, Bare()),
        [Bare()],
        (1, [Bare()]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_text_with_an_address_in_memory_is_refused_with_the_cure(value: object) -> None:
    with pytest.raises(LockNameError, match=r"differs in every process.*__str__"):
        as_text(value)


@pytest.mark.parametrize(
    "value",
    [
        *({1, 2}, frozenset("a"), {"a": 1}, [{1}], ({1},), [[{"a"}]], [{"a": 1}]),
        *(Point(1, {2}), [Point({}, 1)], deque([{1}]), SimpleNamespace(tags={1}), ValueError({1})),
        *(MappingProxyType({"a": 1}), UserDict(a=1), ChainMap({"a": 1}), {"a": 1}.keys()),
        *({"a": 1}.values(), {"a": 1}.items(), functools.partial(print, {1}), slice({1})),
        functools.partial(print, end={1}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_set_or_dict_is_refused_at_any_depth(value: object) -> None:
    with pytest.raises(LockNameError, match="order"):
        as_text(value)


@pytest.mark.parametrize("value", [Request(), logging], ids=["request", "module"])
def test_object_that_is_only_described_is_refused_with_the_cure(value: object) -> None:
    with pytest.raises(LockNameError, match=r"describes a .*request\.path.*__str__"):
        as_text(value)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (["0x7f1234567890"], "['0x7f1234567890']"),
        (Colour, "<enum 'Colour'>"),
        (ValueError("no"), "no"),
        (deque([1]), "deque([1])"),
        (slice(1, 2), "slice(1, 2, None)"),
        (SimpleNamespace(a=1), "namespace(a=1)"),
    ],
)
def test_stable_value_is_not_refused(value: object, text: str) -> None:
    assert as_text(value) == text


def test_given_text_with_an_address_is_accepted() -> None:
    assert as_text("<a at 0x1f>") == "<a at 0x1f>"
    assert as_text(b"<a at 0x1f>") == "<a at 0x1f>"


def test_refusal_of_a_long_value_is_short() -> None:
    with pytest.raises(LockNameError) as caught:
        as_text([Bare()] * 10_000)

    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    ("text", "expected"),
    [("{a}", "%7Ba%7D"), ("a", "a"), ("}{", "%7D%7B"), ("{{", "%7B%7B"), ("", "")],
)
def test_braces_are_escaped(text: str, expected: str) -> None:
    assert escaped(text) == expected
    assert as_text(text) == expected
    assert as_text(text.encode()) == expected


@given(value=st.one_of(st.text(), st.binary(), st.lists(st.text()), st.tuples(st.text())))
def test_braces_of_arguments_are_escaped(value: object) -> None:
    text = as_text(value)

    assert "{" not in text
    assert "}" not in text


@given(first=TEXTS, second=TEXTS)
def test_different_texts_remain_different(first: str, second: str) -> None:
    assert (as_text(first) == as_text(second)) == (first == second)


def test_plain_value_may_be_written_in_any_way() -> None:
    assert stable_text("<a at 0x1f>", "'<a at 0x1f>'") == "'<a at 0x1f>'"


@pytest.mark.parametrize(
    ("value", "text"),
    [(Colour.RED, "Colour.RED"), (Text.RED, "r"), (Number.ONE, "1"), (Right.READ, "4")],
)
def test_enum_member_has_the_same_text_in_every_python(value: object, text: str) -> None:
    assert as_text(value) == text


class Markup(str):
    """A str that escapes the text that it is joined to, like the markup of template engines."""

    __slots__ = ()

    def __radd__(self, other: str) -> "Markup":
        return Markup(f"{other.replace('&', '&amp;')}{self[:]}")

    def replace(self, *args: object) -> "Markup":  # type: ignore[override]
        return self


class Marked:
    def __str__(self) -> str:
        return Markup("home")

    __repr__ = __str__


@pytest.mark.parametrize("value", [Markup("home"), Marked()], ids=["markup", "written"])
@pytest.mark.parametrize("field", ["{page}", "{page!s}", "{page:}", "{page!s:>4}"])
def test_markup_does_not_change_the_text_around_it(value: object, field: str) -> None:
    write = compiled(f"P&L:{field}", inspect.signature(lambda page: None))

    name = write((value,), {})

    assert type(name) is str
    assert name == "P&L:home"


def test_text_of_a_str_subclass_becomes_plain() -> None:
    assert type(as_text(Markup("a"))) is type(as_text(Text.RED)) is str
    assert as_text(Markup("{a}")) == "%7Ba%7D"


BYTES_UNDER_BB = """
import inspect
from redis_lock_decorators._rules.templates import compiled

signature = inspect.signature(lambda a: None)
for template, value in [("{a!s}", b"x"), ("{a!r}", b"x"), ("{a}", b"x"), ("{a}", bytearray(b"x"))]:
    print(compiled(template, signature)((value,), {}))
"""


def test_bytes_can_be_written_under_the_bb_option_of_python() -> None:
    ran = subprocess.run(
        [sys.executable, "-bb", "-c", BYTES_UNDER_BB], capture_output=True, text=True, check=False
    )

    assert ran.stdout.split() == ["b'x'", "b'x'", "x", "bytearray(b'x')"], ran.stderr
