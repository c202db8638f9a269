"""Name templates: valid ones are formatted, others are refused at decoration."""

import enum
import inspect
from collections.abc import Callable
from datetime import date, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from redis_lock_decorators._rules.templates import compiled
from redis_lock_decorators.errors import LockNameError


def order(
    order_id: Any, sku: Any = "none", *rest: Any, warehouse: Any = 1, **more: Any
) -> None: ...


def closed(order_id: Any, sku: Any = "none", *rest: Any, warehouse: Any = 1) -> None: ...


SIGNATURE = inspect.signature(order)
CLOSED = inspect.signature(closed)
ITEM = SimpleNamespace(id=7, owner=SimpleNamespace(name="ann"), lines=[{"sku": "x"}], when=None)


class Bare:
    pass


def written(template: str, *args: Any, **kwargs: Any) -> str:
    return compiled(template, SIGNATURE)(args, kwargs)


@pytest.mark.parametrize(
    ("template", "name"),
    [
        *(("report", "report"), ("two words", "two words"), ("", "")),
        *(("{order_id}", "5"), ("order:{order_id}", "order:5"), ("{order_id}!", "5!")),
        *(("{order_id}{order_id}", "55"), ("{sku}:{warehouse}", "none:1")),
        *(("{{{order_id}}}", "{5}"), ("{{x}}", "{x}"), ("a}}b{{c", "a}b{c")),
        *(("{{tag}}:{order_id}", "{tag}:5"), ("{order_id:}", "5")),
    ],
)
def test_template_is_filled_in(template: str, name: str) -> None:
    assert written(template, 5) == name


@pytest.mark.parametrize(
    ("template", "name"),
    [
        *(("{function}", "shop.order"), ("{function}:{order_id}", "shop.order:5")),
        *(("{{function}}", "{function}"), ("{{{function}}}", "{shop.order}")),
    ],
)
def test_field_names_the_function(template: str, name: str) -> None:
    assert compiled(template, SIGNATURE, "shop.order")((5,), {}) == name


def test_argument_called_function_comes_before_the_function_itself() -> None:
    signature = inspect.signature(lambda function: None)

    assert compiled("{function}", signature, "shop.order")((5,), {}) == "5"


@pytest.mark.parametrize(
    ("template", "name"),
    [
        *(("{order_id.id}", "7"), ("{order_id.owner.name}", "ann")),
        *(("{order_id.lines[0][sku]}", "x"), ("{order_id.id:04}", "0007")),
        *(("{order_id.owner.name!r}", "'ann'"), ("{order_id.when}", "None")),
    ],
)
def test_attributes_and_indexes_are_followed(template: str, name: str) -> None:
    assert written(template, ITEM) == name


@pytest.mark.parametrize(
    ("template", "argument", "name"),
    [
        *(("{order_id[0]}", ["a", "b"], "a"), ("{order_id[1]}", ("a", "b"), "b")),
        *(("{order_id[key]}", {"key": 5}, "5"), ("{order_id[two words]}", {"two words": 5}, "5")),
        *(("{order_id[0]}", {0: "a"}, "a"), ("{order_id[a.b]}", {"a.b": 1}, "1")),
        *(
            ("{order_id[0]}", "abc", "a"),
            ("{order_id[²]}", {"²": 1}, "1"),
            ("{order_id[00]}", ["a"], "a"),
        ),
    ],
)
def test_indexes_are_numbers_or_texts(template: str, argument: Any, name: str) -> None:
    assert written(template, argument) == name


@pytest.mark.parametrize(
    ("template", "argument", "name"),
    [
        *(("{order_id!r}", "a", "'a'"), ("{order_id!s}", 5, "5"), ("{order_id!a}", "é", "'\\xe9'")),
        *(
            ("{order_id:05d}", 42, "00042"),
            ("{order_id:.2f}", 1, "1.00"),
            ("{order_id:x}", 255, "ff"),
        ),
        *(("{order_id:>4}", "ab", "  ab"), ("{order_id!r:>5}", "a", "  'a'")),
        ("{order_id:%Y-%m}", date(2026, 1, 2), "2026-01"),
        ("{order_id:%H:%M}", datetime(2026, 1, 2, 3, 4), "03:04"),
    ],
)
def test_conversions_and_formats_are_applied(template: str, argument: Any, name: str) -> None:
    assert written(template, argument) == name


class Number(enum.IntEnum):
    ONE = 1


class Colour(str, enum.Enum):
    RED = "red"


@pytest.mark.parametrize(
    ("template", "member", "name"),
    [
        *(("{order_id!s}", Number.ONE, "1"), ("{order_id!s}", Colour.RED, "Colour.RED")),
        *(("{order_id:>3}", Number.ONE, "  1"), ("{order_id:>11}", Colour.RED, " Colour.RED")),
    ],
)
def test_enum_member_has_the_same_text_in_every_python(
    template: str, member: enum.Enum, name: str
) -> None:
    assert written(template, member) == name


@pytest.mark.parametrize(
    "template", ["{order_id}", "{order_id!s}", "{order_id:>3}", "{order_id!r}"]
)
def test_braces_of_an_argument_are_escaped_in_every_form(template: str) -> None:
    name = written(template, "{a}")

    assert name.strip("'") == "%7Ba%7D"


@pytest.mark.parametrize("template", ["{order_id}", "{order_id.item}", "{order_id[0]}"])
def test_bytes_are_read_as_text(template: str) -> None:
    argument = {"{order_id}": b"a", "{order_id.item}": SimpleNamespace(item=b"a")}

    assert written(template, argument.get(template, [b"a"])) == "a"


@pytest.mark.parametrize(
    "template",
    [
        *("{order_id}", "x{order_id}", "{order_id!r}", "{order_id!s:>9}", "{order_id!a}"),
        *("{order_id:}", "{rest}", "{order_id!s:.9}"),
    ],
)
def test_argument_with_an_address_in_memory_is_refused(template: str) -> None:
    with pytest.raises(LockNameError, match="differs in every process"):
        written(template, Bare(), "sku", Bare())


@pytest.mark.parametrize(
    "template",
    ["{order_id}", "{order_id!r}", "{order_id!a}", "{order_id!s:>9}", "{order_id!s:.5}", "{more}"],
)
def test_set_or_dict_is_refused_in_every_form(template: str) -> None:
    with pytest.raises(LockNameError, match="order"):
        written(template, {"é", "b"}, unknown=1)


def test_arguments_without_a_name_can_be_reached() -> None:
    name = written("{rest[1]}:{more[extra]}", 1, 2, "a", "b", extra="c")

    assert name == "b:c"


def test_keywords_without_a_parameter_can_be_named() -> None:
    assert written("{pk}:{user.name}", 1, pk=5, user=SimpleNamespace(name="ann")) == "5:ann"


# Refused at decoration


@pytest.mark.parametrize(
    "template",
    [
        *(
            "{unknown}",
            "{}",
            "{0}",
            "{:>4}",
            "{!r}",
            "{.id}",
            "{[0]}",
            "{ order_id }",
            "{Order_id}",
        ),
        *("{", "}", "a{b", "{order_id", "order_id}", "{order_id}}", "{{order_id}", "{order_id!}"),
        *("{order_id!x}", "{order_id!rr}", "{order_id!R}"),
        *("{order_id.}", "{order_id..id}", "{order_id[}", "{order_id[]}", "{order_id[0}"),
        *("{order_id]}", "{order_id[0]x}", "{order_id.[0]}", "{order_id[0].}"),
        *("{order_id:{sku}}", "{order_id:>{warehouse}}", "{order_id!r:{sku}}"),
    ],
)
def test_wrong_template_is_refused_before_any_call(template: str) -> None:
    with pytest.raises(LockNameError) as caught:
        compiled(template, CLOSED)

    assert repr(template)[1:-1] in str(caught.value)


@pytest.mark.parametrize("template", ["{}", "{0}", "{[0]}", "{ a }", "{pk!x}", "{pk[}"])
def test_field_that_is_no_identifier_is_refused_at_decoration(template: str) -> None:
    with pytest.raises(LockNameError):
        compiled(template, SIGNATURE)


def test_error_for_an_unknown_field_lists_the_parameters() -> None:
    with pytest.raises(LockNameError, match=r"order_id, sku, rest, warehouse\).*twice"):
        compiled("{ordr_id}", CLOSED)


@pytest.mark.parametrize("template", ["{function!r}", "{function:>3}", "{function.__name__}"])
def test_attribute_of_function_is_refused_with_the_cure(template: str) -> None:
    with pytest.raises(LockNameError, match=r"is a text, written \{function\} alone"):
        compiled(template, CLOSED, "shop.order")


# Refused at a call


def test_missing_item_is_named() -> None:
    with pytest.raises(
        LockNameError, match=r"cannot read \{order_id\[id\]\}: it has no item 'id'$"
    ):
        written("{order_id[id]}", {})


def test_missing_keyword_is_named() -> None:
    with pytest.raises(LockNameError, match=r"uses \{pk\}.*warehouse, more\) and .* no pk=…"):
        written("{pk}", 1, id=5)


@pytest.mark.parametrize(
    ("template", "argument"),
    [
        *(("{order_id.unknown}", ITEM), ("{order_id.id.unknown}", ITEM), ("{order_id[5]}", [1])),
        *(("{order_id[key]}", {}), ("{order_id[key]}", [1]), ("{order_id[0]}", 5)),
        *(("{order_id[-1]}", [1]), ("{order_id.id}", None)),
    ],
)
def test_missing_attribute_or_item_is_explained(template: str, argument: Any) -> None:
    with pytest.raises(LockNameError, match="cannot read"):
        written(template, argument)


@pytest.mark.parametrize(
    ("template", "argument"),
    [
        *(("{order_id:.2f}", "text"), ("{order_id:d}", 1.5), ("{order_id:>4}", None)),
        *(("{order_id!s:.2f}", 1), ("{order_id!r:d}", 1), ("{order_id:>4}", b"a")),
    ],
)
def test_format_that_does_not_fit_the_value_is_explained(template: str, argument: Any) -> None:
    with pytest.raises(LockNameError, match="cannot write"):
        written(template, argument)


def test_missing_argument_raises_the_type_error_of_the_call() -> None:
    write = compiled("{order_id}", SIGNATURE)

    with pytest.raises(TypeError, match="order_id"):
        write((), {})


def test_error_of_a_property_is_unchanged() -> None:
    class Failing:
        @property
        def name(self) -> str:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        written("{order_id.name}", Failing())


def test_template_is_compiled_once_and_written_for_each_call() -> None:
    write: Callable[..., str] = compiled("order:{order_id}", SIGNATURE)

    names = [write((number,), {}) for number in (1, 2)]

    assert names == ["order:1", "order:2"]
