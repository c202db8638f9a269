"""@redis_lock on every kind of callable."""

from __future__ import annotations

import functools
import inspect

import pytest
from support.fronts import do

from redis_lock_decorators import ConfigurationError, LockNameError, Locks, current_lease
from redis_lock_decorators._shared import current_leases


@pytest.fixture
def locks(client, name):
    """A separate Locks; its keys start with the test's name."""
    return Locks(lambda: client, prefix=f"{name}:")


@pytest.fixture
def key_of(name):
    """The part of the current lease's key that depends on the call."""
    return lambda: current_lease().key.removeprefix(f"{name}:")


def test_bare_decorator_uses_the_first_argument(locks, key_of):
    @locks.redis_lock
    def work(order_id, n=1):
        return key_of()

    assert work(7) == work(order_id=7) == "7"


def test_empty_parentheses_are_the_same(locks, key_of):
    @locks.redis_lock()
    def work(order_id):
        return key_of()

    assert work("a-1") == "a-1"


def test_function_without_arguments_is_named_by_itself(locks, key_of):
    @locks.redis_lock
    def work():
        return key_of()

    assert work() == f"{__name__}.{work.__qualname__}"


def test_template_reads_bound_arguments(locks, key_of):
    @locks.redis_lock("order:{order_id}:{step}")
    def work(order_id, step=1):
        return key_of()

    names = {work(5), work(5, 1), work(5, step=1), work(order_id=5), work(step=1, order_id=5)}
    assert names == {"order:5:1"}


def test_callable_names_the_lock_by_the_arguments(locks, key_of):
    @locks.redis_lock(get_lock_name=lambda order_id, **_: f"order:{order_id}")
    def work(order_id, extra=None):
        return key_of()

    assert work(3, extra=4) == "order:3"


def test_several_names(locks):
    @locks.redis_lock(lock_name=["acct:{src}", "acct:{dst}"])
    def move(src, dst):
        return current_lease().lock_names

    assert move(2, 1) == ("acct:1", "acct:2")
    assert move(1, 1) == ("acct:1",)


def test_methods_of_every_kind_and_inherited_methods(locks, key_of):
    class Store:
        def __init__(self, warehouse):
            self.warehouse = warehouse

        @locks.redis_lock("stock:{self.warehouse}:{sku}")
        def sell(self, sku):
            return key_of()

        @classmethod
        @locks.redis_lock("{cls.__name__}:{sku}")
        def under_class(cls, sku):
            return key_of()

        @locks.redis_lock("{cls.__name__}:{sku}")
        @classmethod
        def over_class(cls, sku):
            return key_of()

        @staticmethod
        @locks.redis_lock("s:{sku}")
        def under_static(sku):
            return key_of()

        @locks.redis_lock
        @staticmethod
        def over_static(sku):
            return key_of()

    class Shop(Store):
        pass

    assert Shop("w1").sell("x") == "stock:w1:x"
    assert Shop.under_class("x") == Shop("w").over_class(sku="x") == "Shop:x"
    assert Store.under_static("x") == "s:x"
    assert Shop("w").over_static("y") == "y"


def test_str_of_self_is_the_name_but_no_default_repr(locks, key_of, client, name):
    class Named:
        def __str__(self):
            return "named-1"

        @locks.redis_lock
        def work(self):
            return key_of()

    class Nameless:
        @locks.redis_lock
        def work(self):
            raise AssertionError("it must not run")

    assert Named().work() == "named-1"
    with pytest.raises(LockNameError, match=r"differs in every process.*__str__"):
        Nameless().work()


def test_mutable_default_is_read_at_each_call(locks, key_of):
    @locks.redis_lock("{items}")
    def work(items=[]):  # noqa: B006  # the default is what is tested
        items.append(1)
        return key_of()

    assert [work(), work(), work([])] == ["[]", "[1]", "[]"]


def test_functools_partial(locks, key_of):
    def work(a, b):
        return key_of()

    bound = locks.redis_lock("{a}-{b}")(functools.partial(work, 1))

    assert bound(2) == bound(b=2) == "1-2"
    with pytest.raises(TypeError):
        bound()


def test_signature_name_docstring_and_kind_are_kept(locks):
    def work(a, /, b: int = 2, *c, d: str, **e) -> list[int]:
        """What it does."""

    def steps():
        yield

    decorated = locks.redis_lock(work)

    assert inspect.signature(decorated) == inspect.signature(work)
    assert (decorated.__name__, decorated.__doc__) == ("work", "What it does.")
    assert decorated.__wrapped__ is work
    assert inspect.isfunction(decorated)
    assert inspect.isgeneratorfunction(locks.redis_lock(steps))


def test_template_is_checked_at_decoration(locks):
    with pytest.raises(LockNameError, match=r"order_di.*order_id"):

        @locks.redis_lock("order:{order_di}")
        def work(order_id):
            raise AssertionError("it must not run")


@pytest.mark.parametrize(
    "options",
    [{"expire": 0}, {"acquire_time": -1}, {"delta": 0}, {"on_busy": "wait"}, {"timeout": 3}],
)
def test_invalid_option_is_refused_at_decoration(locks, options):
    with pytest.raises(ConfigurationError):
        locks.redis_lock("x", **options)


def test_template_over_keywords_is_checked_at_the_call(locks, key_of):
    @locks.redis_lock("x:{pk}")
    def work(request, **kwargs):
        return key_of()

    assert work("get", pk=5) == "x:5"
    with pytest.raises(LockNameError, match="gives no pk"):
        work("get", id=5)


def test_method_of_a_django_view(locks, key_of):
    decorators = pytest.importorskip("django.utils.decorators")

    @decorators.method_decorator(locks.redis_lock("x:{pk}:{request}"), name="dispatch")
    class View:
        def dispatch(self, request, *args, **kwargs):
            return key_of(), args, kwargs

    assert View().dispatch("get", 1, pk=5) == ("x:5:get", (1,), {"pk": 5})


def test_non_function_is_refused(locks):
    cached = functools.cached_property(lambda self: 1)
    for thing in (property(lambda self: 1), cached, 42, type("Order", (), {})):
        with pytest.raises(ConfigurationError, match="decorates functions"):
            locks.redis_lock("x")(thing)
        with pytest.raises(ConfigurationError, match="decorates functions"):
            locks.redis_lock(thing)


def test_lease_released_in_the_body_is_no_longer_current(locks):
    @locks.redis_lock("x")
    def work():
        current_lease().release()

    work()

    assert current_lease() is None
    assert current_leases._entered.get() is None


def test_lock_for_does_not_acquire(locks, name):
    @locks.redis_lock("order:{order_id}")
    def work(order_id):
        return work.lock_for(order_id).owner() == current_lease().identifier

    assert not work.lock_for(7).locked()
    assert work(7)
    assert not work.lock_for(order_id=7).locked()
    with pytest.raises(TypeError):
        work.lock_for(1, 2)


def test_stacked_decorators_nest(locks):
    @locks.redis_lock("outer:{n}")
    @locks.redis_lock("inner:{n}")
    def work(n):
        return current_lease().lock_name, work.lock_for(n).locked()

    assert work(1) == ("inner:1", True)
    assert current_lease() is None


async def test_current_lease_is_of_this_thread_or_task(front, conn, name):
    async with front.held(front.package.RedisLock(name, client=conn)) as lease:

        async def look():
            return front.package.current_lease()

        assert front.package.current_lease() is lease
        if front.name == "blocking":
            assert await front.elsewhere(look) == [None]

    assert front.package.current_lease() is None
    assert await do(1) == 1
