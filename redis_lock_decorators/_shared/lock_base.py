"""The base of both ``RedisLock`` classes: a lock's name and its configuration."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, overload
from weakref import ref

from redis_lock_decorators._flow.extend import owner, owner_info
from redis_lock_decorators._flow.force_release import force
from redis_lock_decorators._flow.port import Port
from redis_lock_decorators._io.client_checks import refuse_misplaced
from redis_lock_decorators._rules import naming
from redis_lock_decorators._rules.durations import checked_acquire_time
from redis_lock_decorators._rules.keys import checked_names, is_name, keys_of, refuse_other_spelling
from redis_lock_decorators._rules.options import checked_switch
from redis_lock_decorators._shared.blocks import Block
from redis_lock_decorators._shared.function_args import found_identifier
from redis_lock_decorators._shared.lock_config import LockConfig
from redis_lock_decorators._shared.settings import DEFAULT, KeywordOptions, LockOptions, Settings
from redis_lock_decorators._shared.wrong_with import NOT_CALLED
from redis_lock_decorators.errors import ConfigurationError, LockNameError

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from redis_lock_decorators._rules.options import Hook, OnLost, ReleaseMethod, Wait
    from redis_lock_decorators._rules.owner_info import OwnerInfoOption

#: The arguments of ``acquire``.
ACQUIRE_ARGUMENTS = ("acquire_time", "blocking")
D = TypeVar("D", bound="LockBase[Any]")
#: The kind of client.
C = TypeVar("C")
#: Attributes of leases that users may look for on a lock.
_OF_LEASES = frozenset(
    (
        *("release", "extend", "check", "lost", "owned", "remaining", "deadline"),
        *("identifier", "fence", "key", "expire", "lock_name"),
    )
)


class _Configured:
    """The type of the default value that stands for the configured option."""

    def __repr__(self) -> str:
        return "<configured>"


CONFIGURED: Any = _Configured()


class LockBase(Generic[C]):
    """A lock that at most one holder has at a time, among all processes.

    The object holds no acquisition of its own: threads and tasks may share and reuse it. Each
    ``with`` block releases its own acquisition, even if another thread or task leaves it.

    Args:
        lock_name: the name to lock, or several; all of them are acquired or none.
        get_lock_name: for ``call``: returns the name for the call's arguments.
        acquire_time: the longest wait, in seconds (10); 0 tries once, None waits indefinitely.
        expire: the time to live of a lease in Redis without renewal, in seconds (10).
        client: the Redis client; by default that of ``get_redis_connection`` or the configured one.
        get_redis_connection: returns the client; called at first use, once per process.
        prefix: the text before the name in the Redis key ("sys:lock:").
        delta: the first pause between two tries, in seconds, where no notification arrives (0.005).
        release_method: "script", "transaction" (WATCH, not on a cluster) or "native" (one command,
            where the server has it, else the script). A lock acquired in a queue uses the script.
        auto_renew: renew the lease every third of ``expire``, until it is released or its object
            is garbage-collected (True).
        max_hold: seconds after the acquisition at which the lease ends at the latest.
        min_hold: seconds after the acquisition before which no other holder acquires the lock, even
            if it is released earlier; not if the block raised an exception.
        on_lost: called once with the lost lease and the reason, in the context of the acquisition;
            for threads on a separate thread if a renewal shows the loss, and on the thread of the
            release or ``extend()`` if that does. An awaitable that it returns is run to its end.
        cancel_on_lost: asyncio only: a loss cancels the task that is in the block (True).
        fencing: give each acquisition a fencing token, ``lease.fence`` (False).
        wait: "queue" (notified in order of arrival), "cohort" (the waiters of a process share a
            queue entry and hand the lock to each other; needs ``auto_renew``) or "poll".
        replicas: how many replicas must confirm an acquisition (0).
        hooks: functions that are called with each event of its acquisitions, on a separate thread;
            see ``redis_lock_decorators.events``.
        owner_info: store information about the holder next to the lock: host, pid, thread or task,
            function, since, fence (False); a function returns further fields. It is called before
            each acquisition. ``owner_info()`` and ``LockTimeoutError`` return it.

    Raises:
        LockNameError: a name is empty or not text.
        ConfigurationError: an option is invalid.
    """

    __slots__ = ("__weakref__", "_blocks", "_config", "_get_lock_name", "_names")

    # The leases of blocks entered by a direct call of ``__enter__``: True once an exit was
    # ambiguous among them, else None.
    _blocks: dict[Any, bool | None]  #: any thread
    _config: LockConfig
    _names: tuple[str, ...] | None
    _get_lock_name: naming.GetLockName | None
    #: Whether its clients are asyncio clients.
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
        hooks: Sequence[Hook] = ...,
        owner_info: OwnerInfoOption = ...,
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
        with_options(self, DEFAULT, client, get_redis_connection, given, lock_name, get_lock_name)

    def __repr__(self) -> str:
        names = ", ".join(map(repr, self._names or ["named by each call"]))
        return f"<RedisLock {names:.80}>"

    def __copy__(self: D) -> D:
        """Return the same lock, without the open blocks."""
        copy = described(type(self), self._config, self._names, self._get_lock_name)
        for name, value in self._of_subclass().items():
            setattr(copy, name, value)
        return copy

    def __deepcopy__(self: D, memo: object) -> D:
        return self.__copy__()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the name and options; the other process adds what it has configured."""
        arguments = type(self), self._config, self._names, self._get_lock_name
        return described, arguments, self._of_subclass() or None

    def _of_subclass(self) -> dict[str, Any]:
        """The attributes that a subclass has added."""
        return getattr(self, "__dict__", {})

    if not TYPE_CHECKING:
        __call__ = NOT_CALLED

        def __getattr__(self, name: str) -> Any:
            """Raise AttributeError; if leases have the attribute, the message says so."""
            problem = f"{type(self).__name__!r} object has no attribute {name!r}"
            if name in _OF_LEASES:
                problem += (
                    ": the lease has it, which the with block and acquire() return "
                    f"(lease = lock.acquire(), then lease.{name})"
                )
            raise AttributeError(problem)

    def _open(self, lease: Any, block: Block[Any], has_exit: bool) -> None:
        """Make the block the owner of its lease; the lock, if the block has no exit of its own."""
        if has_exit and block.held is None:
            block.held = lease
            if block.call is not None and (reference := block.call()) is not None:
                reference.held = lease
            block.ownership, lease._ownership = lease._ownership, None
            lease._leaving = block.call
            lease._block = ref(block, lease._on_block_gone)  # a __del__ would swallow a Ctrl-C
        else:  # the block has no exit, or the same bound methods are used for several blocks
            self._blocks[lease] = None
            block.is_shared = True
        if block.is_shared:
            self._share(block)

    def _share(self, block: Block[Any]) -> None:
        """Own the lease of a block of this lock, as its methods are used for several blocks."""
        lease, ownership = block.held, block.ownership
        if lease is None:
            return
        self._blocks[lease] = lease._block = None
        if ownership is not None:  # else another thread shares it, too
            lease._ownership = ownership
        block.disown()

    def _close(self, lease: Any, block: Block[Any]) -> None:
        """End the ownership of the lease."""
        if block.held is lease and lease is not None:
            block.held = lease._block = None
        else:
            self._blocks.pop(lease, None)

    def _checked_wait(self, acquire_time: float | None, blocking: bool) -> float:
        """Return how many seconds an ``acquire`` call waits."""
        wait = self._config.options.max_wait
        if acquire_time is not CONFIGURED:
            wait = checked_acquire_time(acquire_time)
        return wait if checked_switch("blocking", blocking) else 0.0

    async def _owner(self, port: Port) -> str | None:
        return await owner(port, self._own_keys(), self._own_names())

    async def _owner_info(self, port: Port) -> dict[str, Any] | None:
        return await owner_info(port, self._own_keys(), self._own_names())

    async def _force_release(self, port: Port, identifier: str | None) -> bool:
        seen = None if identifier is None else found_identifier(identifier)
        return await force(port, self._own_keys(), seen, self._own_names())

    def _own_names(self) -> tuple[str, ...]:
        if self._names is not None:
            return self._names
        if self._get_lock_name is not None:
            raise LockNameError(
                "get_lock_name names the locks of calls: write lock.call(function, …), or give the "
                "lock a lock_name"
            )
        return naming.first_argument((), {})

    def _own_keys(self) -> tuple[bytes, ...]:
        prefix = self._config.options.prefix
        return keys_of(prefix, self._own_names())

    def _names_of(self, args: tuple[object, ...], kwargs: dict[str, Any]) -> tuple[str, ...]:
        """Return the names of the lock that ``call`` acquires."""
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
    """Return a lock of a class, by its configuration and its name."""
    return _fill(kind.__new__(kind), config, lock_name, get_lock_name)


def with_options(
    lock: D,
    settings: Settings,
    client: Any,
    factory: Callable[[], Any] | None,
    options: LockOptions,
    lock_name: naming.LockName | None,
    get_lock_name: naming.GetLockName | None,
) -> D:
    """Return a new lock with its attributes set; errors name it."""
    try:
        config = LockConfig(settings, client, factory, options)
        return _fill(lock, config, lock_name, get_lock_name)
    except ConfigurationError as error:
        naming.add_lock(error, lock_name)
        raise


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
    is_ascii = lock_name is None or (type(lock_name) is str and lock_name.isascii())
    if not is_ascii and not config.options.prefix:
        refuse_other_spelling(lock_name)
    lock._get_lock_name = get_lock_name
    return lock
