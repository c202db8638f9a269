"""A lock's description: what it is called, and all else about it. It holds nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, overload
from weakref import ref

from redis_lock_decorators._io.client_checks import refuse_misplaced
from redis_lock_decorators._rules import naming
from redis_lock_decorators._rules.keys import checked_names, is_name, keys_of
from redis_lock_decorators._shared.blocks import Block
from redis_lock_decorators._shared.lock_config import LockConfig
from redis_lock_decorators._shared.settings import DEFAULT, KeywordOptions, LockOptions

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from redis_lock_decorators._rules.options import OnLost, ReleaseMethod, Wait

D = TypeVar("D", bound="LockBase[Any]")
#: The kind of client.
C = TypeVar("C")
#: What users look for on a lock, of which there may be many acquisitions at once.
_OF_LEASES = frozenset(
    (
        *("release", "extend", "check", "lost", "owned", "remaining", "deadline"),
        *("identifier", "fence", "key", "expire", "lock_name"),
    )
)


class _Configured:
    """Stands for a default that ``configure`` may change."""

    def __repr__(self) -> str:
        return "<configured>"


CONFIGURED: Any = _Configured()


class LockBase(Generic[C]):
    """A lock that one holder among all processes has at a time.

    The object only describes the lock: threads and tasks may share it, and use it again and again.
    Each ``with`` block leaves what it has entered, in whichever thread or task it is left.

    Args:
        lock_name: what to lock; several names are held all or none.
        get_lock_name: for ``call``: makes the name from the call's arguments.
        acquire_time: the longest wait, in seconds (10); 0 tries once, None waits for ever.
        expire: seconds a lease lives in Redis without being renewed (10).
        client: the Redis client; without it, ``get_redis_connection`` or the configured hook.
        get_redis_connection: gives the client; called at first use, once per process.
        prefix: what stands before the name in the Redis key ("sys:lock:").
        delta: the first pause between two tries, in seconds, where a waiter cannot be told (0.005).
        release_method: "script", "transaction" (WATCH, not on a cluster) or "native" (one command,
            where the server has it; else by script). After waiting in a queue it is the script.
        auto_renew: renew the lease every third of ``expire``, until it is released or was thrown
            away (True).
        max_hold: seconds from the acquisition after which it is not renewed any more.
        min_hold: seconds from the acquisition that the lock stands, if the block succeeded.
        on_lost: called once with the lease and why it was lost, in the context in which the lock
            was acquired; on a thread of its own. Where it is async, it is run to its end there.
        cancel_on_lost: asyncio only: a loss cancels the task that is in the block (True).
        fencing: number the acquisitions, as ``lease.fence`` (False).
        wait: "queue" (told when it is their turn, in order), "cohort" (the waiters of a process
            share a place and pass the lock on, if it is renewed) or "poll".
        replicas: how many replicas must know of the lock before it is held (0).

    Raises:
        LockNameError: a name is empty or no text.
        ConfigurationError: an option is not usable.
    """

    __slots__ = ("__weakref__", "_blocks", "_config", "_get_lock_name", "_names")

    # The leases of blocks that were entered by hand, whose exits do not know them: True once it was
    # not clear which of them was left, None before. A dict, as putting in and taking out are one
    # step each, and an interruption may come between any two.
    _blocks: dict[Any, bool | None]
    _config: LockConfig
    _names: tuple[str, ...] | None
    _get_lock_name: naming.GetLockName | None
    #: Whether its clients are asyncio's.
    _awaited: ClassVar[bool]

    # Every option is written out once, for editors, which complete no keywords from a TypedDict.
    @overload
    def __init__(
        self,
        lock_name: naming.LockName,
        get_lock_name: None = None,
        acquire_time: float | None = ...,
        expire: float = ...,
        *,
        client: C | None = None,
        get_redis_connection: Callable[[], C] | None = None,
        prefix: str = ...,
        delta: float = ...,
        release_method: ReleaseMethod = ...,
        auto_renew: bool = ...,
        max_hold: float | None = ...,
        min_hold: float | None = ...,
        on_lost: OnLost | None = ...,
        cancel_on_lost: bool = ...,
        fencing: bool = ...,
        replicas: int = ...,
        wait: Wait = ...,
    ) -> None: ...

    @overload
    def __init__(
        self,
        lock_name: None = None,
        get_lock_name: naming.GetLockName | None = None,
        acquire_time: float | None = ...,
        expire: float = ...,
        *,
        client: C | None = None,
        get_redis_connection: Callable[[], C] | None = None,
        **options: Unpack[KeywordOptions],
    ) -> None: ...

    def __init__(
        self,
        lock_name: naming.LockName | None = None,
        get_lock_name: naming.GetLockName | None = None,
        acquire_time: float | None = CONFIGURED,
        expire: float = CONFIGURED,
        *,
        client: C | None = None,
        get_redis_connection: Callable[[], C] | None = None,
        **options: Unpack[KeywordOptions],
    ) -> None:
        given: Any = options
        if acquire_time is not CONFIGURED:
            given["acquire_time"] = acquire_time
        if expire is not CONFIGURED:
            given["expire"] = expire
        config = LockConfig(DEFAULT, client, get_redis_connection, given)
        _fill(self, config, lock_name, get_lock_name)

    def __repr__(self) -> str:
        return f"<RedisLock {', '.join(self._names or ['named by each call'])!r:.80}>"

    def __copy__(self: D) -> D:
        """Another description of the same lock, with blocks of its own."""
        return described(type(self), self._config, self._names, self._get_lock_name)

    def __deepcopy__(self: D, memo: object) -> D:
        return self.__copy__()

    def __reduce__(self) -> tuple[Any, ...]:
        """A lock by name is made anew over what the other process has configured."""
        told = self._config.given_options()
        return _made_again, (type(self), told, self._names, self._get_lock_name)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Only what there is not comes here: of a lease's, say where it is."""
            problem = f"{type(self).__name__!r} object has no attribute {name!r}"
            if name in _OF_LEASES:
                problem += (
                    f": the lease has it, which the block and acquire() give "
                    f"(lease = lock.acquire(), then lease.{name})"
                )
            raise AttributeError(problem)

    def _open(self, lease: Any, block: Block[Any], has_exit: bool) -> None:
        """Let a block hold its lease; the lock does where it has no exit of its own."""
        shared = block.held
        if has_exit and shared is None:
            block.held = lease
            lease._leaving = block.call
            lease._block = ref(block, lease._on_block_gone)  # no __del__: it would swallow a Ctrl-C
            return
        self._blocks[lease] = None
        if shared is not None:  # the same look-up is used for several blocks
            self._blocks[shared] = None
            block.held = shared._block = None

    def _close(self, lease: Any, block: Block[Any]) -> None:
        """Let nobody hold the lease any more."""
        if block.held is lease and lease is not None:
            block.held = lease._block = None
        else:
            self._blocks.pop(lease, None)

    def _own_names(self) -> tuple[str, ...]:
        return self._names if self._names is not None else naming.first_argument((), {})

    def _own_keys(self) -> tuple[bytes, ...]:
        prefix = self._config.options.prefix
        return keys_of(prefix, self._own_names())

    def _names_of(self, args: tuple[object, ...], kwargs: dict[str, Any]) -> tuple[str, ...]:
        """The names of the lock that a call of ``call`` takes."""
        if self._names is not None:
            return self._names
        if self._get_lock_name is not None:
            return naming.called(self._get_lock_name)(args, kwargs)
        return naming.first_argument(args, kwargs)


def described(
    kind: type[D],
    config: LockConfig,
    lock_name: naming.LockName | None,
    get_lock_name: naming.GetLockName | None = None,
) -> D:
    """A lock of a kind, by its config and its name."""
    return _fill(kind.__new__(kind), config, lock_name, get_lock_name)


def _made_again(
    kind: type[D],
    told: tuple[Callable[[], Any] | None, LockOptions],
    lock_name: naming.LockName | None,
    get_lock_name: naming.GetLockName | None,
) -> D:
    """A lock out of a pickle."""
    return described(kind, LockConfig(DEFAULT, None, *told), lock_name, get_lock_name)


def _fill(
    lock: D,
    config: LockConfig,
    lock_name: naming.LockName | None,
    get_lock_name: naming.GetLockName | None,
) -> D:
    is_plain = lock_name is None or type(lock_name) is str or is_name(lock_name)
    if get_lock_name is not None or not is_plain:
        refuse_misplaced(lock_name, get_lock_name)
        naming.refuse_two_ways(lock_name, get_lock_name)
    config.refuse_client(lock._awaited)
    lock._blocks = {}
    lock._config = config
    lock._names = None if lock_name is None else checked_names(lock_name)
    lock._get_lock_name = get_lock_name
    return lock
