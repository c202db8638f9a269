"""Lock names of calls: equal arguments give the same name, however they are passed."""

import functools
import inspect
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redis_lock_decorators._rules.arguments import reader, signature_of
from redis_lock_decorators._rules.naming import first_argument, namer
from redis_lock_decorators.errors import ConfigurationError, LockNameError


def plain(x: Any = 1, y: Any = 2) -> None: ...
def needed(x: Any, y: Any) -> None: ...
def by_place(x: Any = 1, /, y: Any = 2) -> None: ...
def by_name(*, x: Any = 1, y: Any = 2) -> None: ...
def needed_by_name(*, x: Any) -> None: ...
def any_places(*xs: Any) -> None: ...
def any_names(**xs: Any) -> None: ...
def places_first(x: Any, *rest: Any, y: Any = 2) -> None: ...
def caught(x: Any = 1, /, **rest: Any) -> None: ...
def mixed(x: Any = 1, *, y: Any = 2, **rest: Any) -> None: ...
def none() -> None: ...


class Shop:
    """A class with every kind of method."""

    def __str__(self) -> str:
        return "shop 7"

    def method(self, x: Any = 1) -> None: ...

    @classmethod
    def of_class(cls, x: Any = 1) -> None: ...

    @staticmethod
    def static(x: Any = 1) -> None: ...

    def __call__(self, x: Any = 1) -> None: ...


class Bare:
    def method(self) -> None: ...


def names(function: Any, *args: Any, lock_name: Any = None, **kwargs: Any) -> tuple[str, ...]:
    return namer(function, lock_name, None)(args, kwargs)


def bound(function: Any, args: Any, kwargs: Any) -> Any:
    arguments = inspect.signature(function).bind(*args, **kwargs)
    arguments.apply_defaults()
    return arguments.arguments


# Ways to pass arguments


@pytest.mark.parametrize("template", [None, "{x}"])
@pytest.mark.parametrize(
    "call", [((), {}), ((1,), {}), ((), {"x": 1}), ((1, 2), {}), ((), {"y": 5, "x": 1})]
)
def test_default_positional_and_keyword_give_one_name(template: Any, call: Any) -> None:
    args, kwargs = call

    name = names(plain, *args, lock_name=template, **kwargs)

    assert name == ("1",)


@pytest.mark.parametrize("call", [((), {}), ((1,), {}), ((1,), {"y": 3})])
def test_positional_only_parameter_is_read(call: Any) -> None:
    args, kwargs = call

    assert names(by_place, *args, **kwargs) == ("1",)


@pytest.mark.parametrize("kwargs", [{}, {"x": 1}, {"y": 5}, {"x": 1, "y": 5}])
def test_keyword_only_parameter_is_read(kwargs: Any) -> None:
    assert names(by_name, **kwargs) == ("1",)


def test_extra_keyword_is_no_positional_only_parameter() -> None:
    assert names(caught, 5, x="other") == ("5",)
    assert names(caught, x="other") == ("1",)
    assert names(caught, 5, lock_name="{rest[x]}", x="other") == ("other",)


@pytest.mark.parametrize(
    ("args", "name"), [((5,), "5"), ((5, 6), "5"), ((), f"{__name__}.any_places")]
)
def test_first_of_any_number_of_arguments_gives_the_name(args: Any, name: str) -> None:
    assert names(any_places, *args) == (name,)


@pytest.mark.parametrize(
    ("template", "name"),
    [("{rest}", "(6, 7)"), ("{rest[1]}", "7"), ("{x}:{y}", "5:2")],
)
def test_remaining_arguments_are_read(template: str, name: str) -> None:
    assert names(places_first, 5, 6, 7, lock_name=template) == (name,)


@pytest.mark.parametrize("function", [none, any_names])
def test_function_without_an_argument_to_name_it_is_named_by_itself(function: Any) -> None:
    assert names(function) == (f"{__name__}.{function.__name__}",)


def test_keywords_alone_do_not_name_a_function_of_any_keywords() -> None:
    assert names(any_names, x=5) == (f"{__name__}.any_names",)


def test_mutable_default_is_read_at_the_call() -> None:
    default: list[int] = []

    def collecting(x: list[int] = default) -> None: ...

    name = namer(collecting, None, None)
    default.append(1)

    assert name((), {}) == ("[1]",)


@given(
    function=st.sampled_from([plain, needed, by_place, by_name, places_first, caught, mixed]),
    args=st.lists(st.integers(0, 9), max_size=4),
    kwargs=st.dictionaries(st.sampled_from(["x", "y", "z"]), st.integers(0, 9)),
)
def test_every_parameter_is_read_as_the_call_would_bind_it(
    function: Any, args: list[int], kwargs: dict[str, int]
) -> None:
    try:
        arguments = bound(function, args, kwargs)
    except TypeError:
        return
    signature = signature_of(function)

    read = {name: reader(signature, name)(tuple(args), kwargs) for name in signature.parameters}

    assert read == dict(arguments)


# Invalid calls


@pytest.mark.parametrize("template", [None, "{x}", "a:{x}", "{x.id}"])
@pytest.mark.parametrize("function", [needed, needed_by_name])
def test_missing_argument_gives_a_type_error_that_names_it(function: Any, template: Any) -> None:
    with pytest.raises(TypeError, match=r"missing.*'x'"):
        names(function, lock_name=template)


def test_missing_argument_outside_the_name_is_left_to_the_call() -> None:
    assert names(needed, 1) == ("1",)


def test_missing_positional_only_argument_is_not_read_from_keywords() -> None:
    def strict(x: Any, /, **rest: Any) -> None: ...

    with pytest.raises(TypeError, match="x"):
        names(strict, x=1)


def test_missing_argument_names_the_function() -> None:
    with pytest.raises(
        TypeError, match=rf"^@redis_lock on {__name__}.needed: missing.*'x'"
    ) as caught:
        names(needed, lock_name="{x}")

    assert type(caught.value) is TypeError


# Wrappers


def account(session: Any, account: Any, amount: Any = 0) -> None: ...
def shop(account: Any, amount: Any, *, session: Any) -> None: ...
def optional(account: Any, amount: Any = 0) -> None: ...


def wrapped(function: Any) -> Any:
    """A wrapper that accepts any arguments, as most decorators return it."""

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any: ...

    return wrapper


@pytest.mark.parametrize("lock_name", ["a:{account}", ["a:{account}", "b"], "{function}:{account}"])
@pytest.mark.parametrize(
    ("function", "args"), [(account, (7,)), (shop, (7,)), (optional, (1, 7, 2))]
)
def test_wrapper_that_may_shift_arguments_is_not_read_by_position(
    function: Any, args: Any, lock_name: Any
) -> None:
    with pytest.raises(TypeError, match=r"^@redis_lock on .*put @redis_lock below it"):
        names(wrapped(function), *args, lock_name=lock_name)


@pytest.mark.parametrize(
    ("args", "kwargs"), [((), {"account": 7}), (("s",), {"account": 7}), (("s", 7), {})]
)
def test_argument_that_the_wrapper_cannot_shift_is_read(args: Any, kwargs: Any) -> None:
    assert names(wrapped(account), *args, lock_name="a:{account}", **kwargs) == ("a:7",)


def test_argument_that_is_added_by_keyword_moves_no_other() -> None:
    assert names(wrapped(shop), 7, 100, lock_name="a:{account}") == ("a:7",)


def test_name_without_arguments_of_what_is_wrapped_needs_none() -> None:
    assert names(wrapped(account), 7, lock_name="report") == ("report",)
    assert names(wrapped(account), 7, lock_name="{function}") == (f"{__name__}.account",)
    assert names(wrapped(account), 7) == ("7",)


def test_wrapper_that_names_its_arguments_is_read_by_them() -> None:
    @functools.wraps(account)
    def injecting(account: Any, amount: Any = 0) -> None: ...

    for wrapper in (injecting, wrapped(injecting), wrapped(wrapped(injecting))):
        assert names(wrapper, 7, lock_name="{account}") == ("7",)
        assert names(wrapper, 7) == ("7",)
    with pytest.raises(LockNameError, match="session"):
        namer(injecting, "{session}", None)


def test_method_that_wraps_is_read_without_its_object() -> None:
    class Bank:
        @wrapped
        def move(self, account: Any, amount: Any) -> None: ...

        @functools.wraps(move)
        def named(self, account: Any) -> None: ...

    assert names(Bank().move, 7, 1, lock_name="{account}") == ("7",)
    assert names(Bank.move, Bank(), 7, 1, lock_name="{account}") == ("7",)
    assert names(Bank().named, 7, lock_name="{account}") == ("7",)
    with pytest.raises(TypeError, match="put @redis_lock below it"):
        names(Bank().move, 7, lock_name="{account}")


def test_object_whose_call_is_wrapped_has_the_signature_of_its_call() -> None:
    class Job:
        __call__ = wrapped(lambda self, order: None)

    assert names(Job(), 7, lock_name="{order}") == ("7",)


def test_signature_that_a_wrapper_was_given_holds() -> None:
    wrapper = wrapped(account)
    wrapper.__signature__ = inspect.signature(optional)

    assert names(wrapper, 7, lock_name="{account}") == ("7",)


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
    assert names(Shop.of_class.__func__, Shop) == (f"<class '{__name__}.Shop'>",)  # type: ignore[attr-defined]
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


def test_wrapped_function_is_named_by_what_it_wraps() -> None:
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

    with pytest.raises(TypeError, match=rf"on {__name__}\.plain: get_lock_name=.* defaults: "):
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
    message = rf"If {__name__}\.plain is to name the lock of {__name__}\.needed: .*get_lock_name="

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
