"""Sets, dicts and addresses inside objects: refused if the text of the object shows them."""

import collections.abc
import functools
import inspect
from collections.abc import Callable, Iterator

import pytest
from support.texts import Addressed, Bare, Hidden, Query, Slotted, Spoken, Tagged

from redis_lock_decorators._rules.name_values import as_text
from redis_lock_decorators._rules.templates import compiled
from redis_lock_decorators.errors import LockNameError


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
            Model(facts={"a": 1}),
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
        *(
            tagged(Slotted, tags={"a"}),
            [tagged(Slotted, tags={"a"})],
            tagged(Addressed, tags={"a"}),
        ),
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
