"""Arguments as text: the same in every process, or refused."""

import asyncio
import collections.abc
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
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from types import MappingProxyType, SimpleNamespace
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redis_lock_decorators._rules.templates import compiled
from redis_lock_decorators._rules.texts import as_text, escaped, stable_text
from redis_lock_decorators.errors import LockNameError

#: Without the sign by which braces are escaped.
TEXTS = st.text(st.characters(exclude_characters="%"))


class Bare:
    def method(self) -> None: ...


class Numbered:
    def __repr__(self) -> str:
        return f"<W {id(self):#x}>"


class Kept:
    def __repr__(self) -> str:
        return f"Kept({id(self)})" if not vars(self) else f"Kept({vars(self)})"


class Slotted:
    __slots__ = ("tags",)

    def __repr__(self) -> str:
        return f"Slotted({self.tags!r})"


class Request:
    def __repr__(self) -> str:
        return "<Request: GET '/articles'>"


class Spoken:
    def __str__(self) -> str:
        return "order 7"


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


@dataclass
class Query:
    words: object = field(default_factory=list)


@dataclass
class Tagged:
    number: int
    tags: set[str]

    def __str__(self) -> str:
        return f"order {self.number}"


@dataclass
class Hidden:
    number: int
    tags: set[str] = field(repr=False)


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


class Model:
    """Prints its fields, as pydantic's models do."""

    def __init__(self, **fields: object) -> None:
        self.__dict__.update(fields)

    def __str__(self) -> str:
        return " ".join(f"{name}={field!r}" for name, field in vars(self).items())


class Private:
    __slots__ = ("__tags",)

    def __init__(self, tags: object) -> None:
        self.__tags = tags

    def __str__(self) -> str:
        return f"Private({self.__tags})"


@pytest.mark.parametrize(
    "value",
    [
        *(
            Model(tags={"a", "b"}),
            Model(client_state={"a": 1}),
            Model(rows=[(1, {"a"})]),
            Private({"a"}),
        ),
        [Model(tags={"a"})],
    ],
    ids=["set", "dict", "nested", "private", "listed"],
)
def test_set_that_an_object_prints_by_its_own_text_is_refused(value: object) -> None:
    with pytest.raises(LockNameError, match="order"):
        as_text(value)


class Filter:
    """Shows its contents in its repr."""

    def __init__(self, tags: object) -> None:
        self.tags = tags

    def __repr__(self) -> str:
        return f"Filter({self.tags!r})"


class Row:
    """Shows a dict without braces, and its slots."""

    __slots__ = ("__extra__", "_columns")

    def __init__(self, columns: object, **extra: object) -> None:
        self._columns = columns
        self.__extra__ = extra

    def __str__(self) -> str:
        return ", ".join(f"{name}={self.__extra__[name]}" for name in self.__extra__)


class Tags(list[object]):
    """A list that shows its attributes."""

    def __init__(self, shown: object) -> None:
        self.shown = shown

    def __repr__(self) -> str:
        return f"Tags({self.shown})"


class Refusal(Exception):
    def __init__(self, tags: object) -> None:
        super().__init__("refused")
        self.tags = tags

    def __str__(self) -> str:
        return f"not {self.tags}"


class Alphabet(collections.abc.Set[str]):
    """A set with its own __str__."""

    def __contains__(self, letter: object) -> bool:
        return letter == "a"

    def __iter__(self) -> Iterator[str]:
        return iter("a")

    def __len__(self) -> int:
        return 1

    def __str__(self) -> str:
        return "the letter a"


class Unreachable:
    """A proxy without an object, such as that of a request outside of a request."""

    def __getattribute__(self, name: str) -> object:
        raise RuntimeError(name)


class Unwritable(dict[str, object]):
    def __repr__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(
    "value",
    [
        Model(filter=Filter({"a", "b"})),
        Model(filter=Filter([Filter((1, {"a"}))])),
        Model(filter=Filter({"é"})),
        Row(None, tags={"a"}),
        Row(None, filter=Filter(frozenset("a"))),
        Row(None, by_key={"a": 1}.keys()),
        Tags({"a"}),
        Refusal({"a"}),
        Refusal(Filter({"a"})),
        Row([Unreachable(), Unwritable(a=1)], inner=Filter({"a"})),
        Row(None, letters=Alphabet()),
        Model(far=functools.reduce(lambda inner, _: Filter(inner), range(100), {"a"})),
    ],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize("field", ["{a}", "{a!s}", "{a!s:>9}"])
def test_set_that_is_shown_at_any_depth_is_refused(value: object, field: str) -> None:
    write = compiled(field, inspect.signature(lambda a: None))

    with pytest.raises(LockNameError, match="order"):
        write((value,), {})


class Sorted(Spoken):
    """A class with a set as class attribute, which its format shows."""

    letters = frozenset("ab")

    def __format__(self, what: str) -> str:
        return f"{self.letters}" if what == "letters" else f"at {id(self)}"


@pytest.mark.parametrize(("field", "message"), [("{a:letters}", "order"), ("{a:id}", "differs in")])
def test_formatted_text_is_checked(field: str, message: str) -> None:
    write = compiled(field, inspect.signature(lambda a: None))

    with pytest.raises(LockNameError, match=message):
        write((Sorted(),), {})


def test_set_of_a_class_that_its_objects_show_is_refused() -> None:
    class Lettered(Sorted):
        def __str__(self) -> str:
            return f"order 7 of {self.letters}"

    assert as_text(Sorted()) == "order 7"
    with pytest.raises(LockNameError, match="order may differ"):
        as_text(Lettered())


def test_hidden_empty_dict_is_ignored() -> None:
    assert as_text(Row({"cache": {}, "seen": set()}, body="{}, set()")) == "body=%7B%7D, set()"


class Lazy:
    """A proxy that loads its object when its class is accessed, like Django's lazy objects."""

    def __init__(self, get: Callable[[], object]) -> None:
        self.get = get

    @property
    def __class__(self) -> type:  # type: ignore[override]
        return type(self.get())

    def __iter__(self) -> Iterator[object]:
        return iter(self.get())  # type: ignore[call-overload,no-any-return]

    def __repr__(self) -> str:
        return repr(self.get())


def test_proxy_that_an_object_does_not_show_is_not_resolved() -> None:
    asked: list[int] = []

    def get() -> object:
        asked.append(1)
        return asked

    text = as_text(tagged(Spoken, user=Lazy(get), all=[Lazy(get)]))

    assert (text, asked) == ("order 7", [])


def test_proxy_of_a_set_that_is_shown_is_refused() -> None:
    with pytest.raises(LockNameError, match="order may differ"):
        as_text([Lazy(lambda: {"a", "b"})])


def test_set_of_other_letters_is_found_in_ascii() -> None:
    write = compiled("{a!a}", inspect.signature(lambda a: None))

    with pytest.raises(LockNameError, match="order"):
        write(([Filter({"é"})],), {})


class Deep:
    """An object whose text has the id() of a part."""

    def __init__(self) -> None:
        self.held = [[Bare()]]

    def __str__(self) -> str:
        return f"deep {id(self.held[0][0])}"


def test_address_of_what_an_object_holds_is_refused() -> None:
    with pytest.raises(LockNameError, match="differs in every process"):
        as_text(Deep())


def test_object_that_shows_braces_and_reaches_very_much_is_refused() -> None:
    with pytest.raises(LockNameError, match="very many parts"):
        as_text(Row([(number,) for number in range(10_000)], body="{a}"))


def test_object_that_cannot_be_inspected_is_accepted() -> None:
    value = Row([Unreachable(), Unwritable(a=1)], body="{a}")

    assert as_text(value) == "body=%7Ba%7D"


def test_hidden_set_is_ignored_in_a_text_with_braces() -> None:
    value = Row({"seen": {"a", "b"}, "state": {"a": {"b"}}}, body='{"a": 1}')

    assert as_text(value) == 'body=%7B"a": 1%7D'


def test_object_that_hides_its_contents_may_have_any() -> None:
    value = Spoken()
    value.__dict__["all"] = {"a", "b"}
    value.__dict__["many"] = [{number} for number in range(20_000)]

    assert as_text(value) == "order 7"


def test_container_of_very_many_parts_is_refused() -> None:
    with pytest.raises(LockNameError, match="very many parts"):
        as_text([(number,) for number in range(10_000)])


def test_container_of_very_many_plain_values_is_written() -> None:
    assert as_text(list(range(10_000))).endswith(", 9999]")


def tagged(kind: type, **attributes: object) -> object:
    value = kind()
    for name, attribute in attributes.items():
        setattr(value, name, attribute)
    return value


@pytest.mark.parametrize(
    "value",
    [
        *(Query({"a", "b"}), [Query({"a", "b"})]),
        *(tagged(Slotted, tags={"a"}), [tagged(Slotted, tags={"a"})], tagged(Kept, tags={"a"})),
    ],
    ids=lambda value: type(value).__name__,
)
def test_set_inside_of_an_object_is_refused(value: object) -> None:
    with pytest.raises(LockNameError):
        as_text(value)


def test_set_inside_an_object_that_hides_it_is_ignored() -> None:
    assert as_text(Tagged(7, {"a", "b"})) == "order 7"
    assert as_text([Hidden(7, {"a", "b"})]) == "[Hidden(number=7)]"


def test_objects_that_hold_each_other_are_written() -> None:
    query = Query()
    query.words = [query]

    assert as_text(query) == "Query(words=[...])"


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


def test_refusal_is_short_however_long_the_value() -> None:
    with pytest.raises(LockNameError) as caught:
        as_text([Bare()] * 10_000)

    assert len(str(caught.value)) < 500


# Braces


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
def test_different_texts_stay_different(first: str, second: str) -> None:
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
