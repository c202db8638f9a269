"""Lock names of calls: equal arguments give the same name, however they are passed."""

import functools
import inspect
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.named_functions import MODULE, bound, names, needed, none, plain

from redis_lock_decorators._rules.arguments import reader, signature_of
from redis_lock_decorators._rules.naming import namer
from redis_lock_decorators.errors import LockNameError


def by_place(x: Any = 1, /, y: Any = 2) -> None: ...


def by_name(*, x: Any = 1, y: Any = 2) -> None: ...


def needed_by_name(*, x: Any) -> None: ...


def any_places(*xs: Any) -> None: ...


def any_names(**xs: Any) -> None: ...


def places_first(x: Any, *rest: Any, y: Any = 2) -> None: ...


def caught(x: Any = 1, /, **rest: Any) -> None: ...


def mixed(x: Any = 1, *, y: Any = 2, **rest: Any) -> None: ...


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
def test_function_without_an_argument_is_named_after_itself(function: Any) -> None:
    assert names(function) == (f"{function.__module__}.{function.__name__}",)


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
        TypeError, match=rf"^@redis_lock on {MODULE}.needed: missing.*'x'"
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


def test_name_without_arguments_of_a_wrapped_function_needs_none() -> None:
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
