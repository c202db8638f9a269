"""The sources of lock names: kinds of functions, templates and ``get_lock_name``."""

import functools
from types import SimpleNamespace
from typing import Any

import pytest
from support.named_functions import MODULE, Bare, Shop, names, needed, none, plain

from redis_lock_decorators._rules.naming import first_argument, namer
from redis_lock_decorators.errors import ConfigurationError, LockNameError

# Kinds of functions


def test_method_is_named_by_its_object() -> None:
    assert names(Shop.method, Shop()) == ("shop 7",)
    assert names(Shop.method, Shop(), 5, lock_name="{self}:{x}") == ("shop 7:5",)


def test_bound_method_is_named_by_its_first_argument() -> None:
    assert names(Shop().method, 5) == ("5",)
    assert names(Shop().method) == ("1",)


def test_method_of_an_object_without_its_own_text_is_refused() -> None:
    with pytest.raises(LockNameError, match="differs in every process"):
        names(Bare.method, Bare())


def test_class_method_is_named_by_its_class() -> None:
    assert names(Shop.of_class.__func__, Shop) == (f"<class '{MODULE}.Shop'>",)  # type: ignore[attr-defined]
    assert names(Shop.of_class, 5) == ("5",)


def test_static_method_is_named_by_its_first_argument() -> None:
    assert names(Shop.static, 5) == names(Shop.static, x=5) == ("5",)


def test_callable_object_is_named_by_its_first_argument() -> None:
    assert names(Shop(), 5) == ("5",)


def test_callable_object_without_arguments_is_named_by_its_class() -> None:
    class Job:
        def __call__(self) -> None: ...

    (name,) = names(Job())

    assert name == f"{__name__}.{Job.__qualname__}"


def test_partial_is_named_as_the_call_that_it_makes() -> None:
    assert names(functools.partial(plain, 5)) == ("5",)
    assert names(functools.partial(plain, x=5)) == ("5",)
    assert names(functools.partial(plain, y=5), 6) == ("6",)
    assert names(functools.partial(plain, y=5), lock_name="{x}:{y}") == ("1:5",)
    assert names(functools.partial(functools.partial(plain, 5), 6), lock_name="{x}:{y}") == ("5:6",)
    assert names(functools.partial(none)) == names(none)


def test_keyword_of_a_partial_can_be_given_again() -> None:
    assert names(functools.partial(plain, x=5), x=6) == ("6",)


def test_wrapped_function_is_named_by_its_wrapped_function() -> None:
    @functools.wraps(plain)
    def wrapper(*args: Any, **kwargs: Any) -> None: ...

    assert names(wrapper) == names(wrapper, 1) == names(wrapper, x=1) == ("1",)


@pytest.mark.parametrize("function", [len, str.upper, "".join, [].append])
def test_builtin_with_a_signature_is_named_by_its_first_argument(function: Any) -> None:
    assert names(function, "abc") == ("abc",)


@pytest.mark.parametrize("function", [min, dict.update, type])
def test_builtin_without_a_signature_is_refused_with_the_cure(function: Any) -> None:
    with pytest.raises(LockNameError, match="get_lock_name="):
        namer(function, None, None)


def test_builtin_without_a_signature_can_be_named_by_a_function() -> None:
    name = namer(min, None, lambda *numbers: f"of {len(numbers)}")

    assert name((1, 2), {}) == ("of 2",)


# Sources of names


def test_several_templates_give_several_names_in_order() -> None:
    name = namer(plain, ["b:{y}", "a:{x}"], None)

    assert name((5,), {"y": 6}) == ("a:5", "b:6")


def test_several_templates_that_are_filled_in_alike_give_one_name() -> None:
    name = namer(plain, ["acct:{x}", "acct:{y}"], None)

    assert name((5, 5), {}) == ("acct:5",)
    assert name((6, 5), {}) == ("acct:5", "acct:6")


def test_template_may_name_the_function_itself() -> None:
    named = namer(test_template_may_be_bytes, "{function}", None)

    assert named((), {}) == (f"{__name__}.test_template_may_be_bytes",)


def test_template_may_be_bytes() -> None:
    assert names(plain, lock_name=b"x:{x}") == ("x:1",)


def test_filled_in_name_is_composed() -> None:
    assert names(plain, "cafe\u0301") == names(plain, "caf\u00e9")
    assert names(plain, "\u0301", lock_name="cafe{x}") == names(plain, lock_name="caf\u00e9")


@pytest.mark.parametrize("template", [None, "{x}", ["{x}", "a"]])
def test_empty_name_is_refused_at_the_call(template: Any) -> None:
    with pytest.raises(LockNameError, match="empty"):
        names(plain, "", lock_name=template)


@pytest.mark.parametrize("lock_name", ["", [], ["a", ""], "{unknown}", ["{x}", "{unknown}"], 5])
def test_wrong_name_is_refused_at_decoration(lock_name: Any) -> None:
    with pytest.raises(LockNameError):
        namer(plain, lock_name, None)


def test_get_lock_name_receives_the_arguments_of_the_call() -> None:
    name = namer(plain, None, lambda x, **more: [f"order:{x}", b"all"])

    assert name((5,), {"y": 6}) == ("all", "order:5")


@pytest.mark.parametrize(
    "get_lock_name", [lambda x, y: "a", functools.partial(lambda x, y: "a"), lambda: "a"]
)
def test_get_lock_name_that_rejects_the_arguments_is_explained(get_lock_name: Any) -> None:
    name = namer(plain, None, get_lock_name)

    with pytest.raises(TypeError, match=rf"on {MODULE}\.plain: get_lock_name=.* default values: "):
        name((5,), {})


def test_type_error_inside_of_get_lock_name_is_unchanged() -> None:
    name = namer(plain, None, lambda x: f"{x:d}" + x)

    with pytest.raises(TypeError, match=r"^unsupported operand|^can only concatenate"):
        name((5,), {})


async def later(*args: Any) -> str:
    return "a"


def one_by_one(*args: Any) -> Any:
    yield "a"


@pytest.mark.parametrize(
    ("get_lock_name", "kind"), [(later, "an async function"), (one_by_one, "a generator")]
)
def test_get_lock_name_whose_body_runs_later_is_refused(get_lock_name: Any, kind: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"get_lock_name=.* is {kind}: "):
        namer(plain, None, get_lock_name)


@pytest.mark.parametrize("result", [None, 5, "", [], object()])
def test_get_lock_name_that_returns_no_name_is_refused_at_the_call(result: Any) -> None:
    name = namer(plain, None, lambda *args: result)

    with pytest.raises(LockNameError):
        name((), {})


def test_get_lock_name_receives_the_arguments_of_a_partial() -> None:
    name = namer(functools.partial(plain, 5), None, lambda x, y: f"{x}:{y}")

    assert name((6,), {}) == ("5:6",)


def test_lock_name_and_get_lock_name_together_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="not both"):
        namer(plain, "a", lambda: "b")


@pytest.mark.parametrize("get_lock_name", ["a", 5, ["a"]])
def test_get_lock_name_that_is_not_callable_is_refused(get_lock_name: Any) -> None:
    with pytest.raises(ConfigurationError, match="lock_name"):
        namer(plain, None, get_lock_name)


def test_default_name_that_fails_is_explained() -> None:
    name = namer(plain, None, None)
    message = rf"If {MODULE}\.plain is to name the lock of {MODULE}\.needed: .*get_lock_name="

    with pytest.raises(LockNameError, match=message):
        name((needed,), {})
    with pytest.raises(LockNameError, match=r"is one lock for all calls$"):
        name((Bare(),), {})


def test_first_argument_names_a_call_without_any_rule() -> None:
    assert first_argument((5, 6), {}) == ("5",)
    assert first_argument((SimpleNamespace(a=1),), {}) == ("namespace(a=1)",)


@pytest.mark.parametrize("kwargs", [{}, {"x": 5}])
def test_call_without_any_rule_or_argument_has_no_name(kwargs: Any) -> None:
    with pytest.raises(LockNameError, match="has no name"):
        first_argument((), kwargs)
