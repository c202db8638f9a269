"""The exceptions. Each has its details as attributes and composes its own message."""

from __future__ import annotations

import email.parser  # noqa: F401  # else importlib.metadata imports it at its first use
import math
import re
from collections.abc import Mapping
from functools import cache
from importlib.metadata import metadata
from typing import Any

import redis.exceptions

#: Why a released lock is still not free.
KEPT_BY = "kept by the min_hold of"
#: Why a lease is lost whose key does not exist.
KEY_GONE = "its key is gone"
#: Why a lease without renewal is lost. The reasons of leases that were not renewed in time begin
#: with it.
RAN_OUT = "its time ran out"
#: The server refused the renewal.
UNRENEWED = f"{RAN_OUT}, as its renewal was refused"
#: The server did not answer the renewal.
UNANSWERED = f"{RAN_OUT}, as its renewal brought no answer"
#: No renewal was sent.
NEVER_SENT = f"{RAN_OUT} before a renewal was sent"
#: The end of the reason if another client has the lock.
HOLDS = " holds it"
#: The beginning of the reason if the lease has reached its ``max_hold``.
AT_MOST = "its max_hold of"

#: The cure for a loss, by the beginning of its reason.
_ADVICE = {
    UNRENEWED: "grant the missing permission or free memory (redis-lock doctor)",
    UNANSWERED: "check the server and the network, or make expire longer than such an outage",
    NEVER_SENT: "do not block the process or its event loop for so long, or make expire longer",
    RAN_OUT: "make the work shorter or expire longer",
    AT_MOST: "make the work shorter or max_hold longer",
}

#: The beginnings of composed messages: an error that is recreated from its arguments has only
#: its message, as task queues do it.
_BEGINNINGS = ("lock '", 'lock "', "the lease of lock ")


#: The fields of the information about a holder that ``described`` does not show by their name.
_PLACE = ("host", "pid", "since", "fence")


class LockError(redis.exceptions.LockError):
    """The base class of this package's errors.

    Attributes:
        lock_name: the name of the lock, without the prefix; None if there is none.
    """

    def __init__(self, sentence: str = "", lock_name: str | None = None) -> None:
        super().__init__(sentence)
        self.args = (sentence,)  # redis-py 5 would keep the arguments of the subclass
        self.lock_name = lock_name

    def __str__(self) -> str:
        sentence = super().__str__()
        page = _page()
        if not page or not sentence or page in sentence:  # it may be recreated from its message
            return sentence
        return f"{sentence}; see {page}#{_anchor(type(self))}"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({super().__str__()!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.args, self.__dict__)


class LockTimeoutError(LockError, TimeoutError):
    """The lock was not free within ``acquire_time``.

    Attributes:
        waited: the seconds spent waiting.
        holder: the identifier of the holder at the last try, shortened; None if unknown.
        free_in: the seconds until that lease expires unless it is renewed; infinity for a key
            without a time to live, None if unknown.
        owner: the information about the holder, if both locks have ``owner_info``; else None.
    """

    def __init__(
        self,
        lock_name: str,
        *,
        waited: float | None = None,
        holder: str | None = None,
        free_in: float | None = None,
        why: str = "",
        owner: Mapping[str, Any] | None = None,
        held_for: float | None = None,
    ) -> None:
        self.owner = owner
        if waited is None:  # recreated from its message
            self.waited, self.holder, self.free_in = 0.0, None, None
            super().__init__(lock_name)
            return
        self.waited = waited
        self.holder = shortened(holder)
        self.free_in = free_in
        super().__init__(self._message(lock_name, why, held_for), lock_name)

    def _message(self, lock_name: str, why: str, held_for: float | None) -> str:
        tried = f"within {in_seconds(self.waited)}" if self.waited >= 0.01 else "when tried once"
        held = why or (f"held by {self.holder}" if self.holder else "held by another client")
        if self.owner and not why:
            held += f" ({described(self.owner, held_for)})"
        cure = "wait longer (acquire_time=…), or in @redis_lock handle it by on_busy=…"
        if self.free_in == math.inf:
            held += " without an expiry"
            cure = "if its holder has crashed, delete the key"
        elif self.free_in is not None and held.startswith(KEPT_BY):
            held += f" for another {in_seconds(self.free_in)}"
        elif self.free_in is not None:
            held += f" for at most {in_seconds(self.free_in)} unless renewed"
        return f"lock {shown(lock_name)} was not free {tried}: {held}; {cure}"


class LockUnconfirmedError(LockError):
    """The lock was free, but too few replicas confirmed it in time, so it was released.

    The lock is not busy: ``on_busy`` does not handle this error.
    """

    def __init__(self, lock_name: str, *, why: str = "") -> None:
        if not why:  # recreated from its message
            super().__init__(lock_name)
            return
        super().__init__(
            f"lock {shown(lock_name)} was not kept: {why}; check the replicas and their "
            "network (INFO replication), wait longer (acquire_time=…) or require fewer "
            "(replicas=…)",
            lock_name,
        )


class LockNotOwnedError(LockError, redis.exceptions.LockNotOwnedError):
    """The caller does not hold this lock.

    Attributes:
        holder: the identifier of the holder, shortened; None if there is none or it is unknown.
    """

    def __init__(self, lock_name: str, *, holder: str | None = None, why: str = "") -> None:
        self.holder = shortened(holder)
        if not why and holder is None and lock_name.startswith(_BEGINNINGS):
            super().__init__(lock_name)  # recreated from its message
            return
        super().__init__(self._message(lock_name, why), lock_name)

    def _message(self, lock_name: str, why: str) -> str:
        return f"lock {shown(lock_name)} is not held by this caller: {why or self._now()}"

    def _now(self) -> str:
        return f"it is held by {self.holder}" if self.holder else "it is not locked"


class LockLostError(LockNotOwnedError):
    """A lease ended before it was released, so another client may have held the lock since."""

    def _message(self, lock_name: str, why: str) -> str:
        lost = why or self._now()
        cures = [cure for reason, cure in _ADVICE.items() if lost.startswith(reason)][:1]
        if not cures and (lost == KEY_GONE or self.holder or lost.endswith(HOLDS)):
            gone = "deleted, evicted, released by force, or lost by the server"
            lost = f"{lost} (the key was {gone}, or it expired)"
        cure = ", and ".join([*cures, "check what the protected code did since then"])
        return f"the lease of lock {shown(lock_name)} ended before the work did: {lost}; {cure}"


class LockNameError(LockError):
    """A lock's name cannot be built, or could differ between processes.

    Also raised if the key holds data that is not a lock.
    """


class ConfigurationError(LockError):
    """An option, a client or the environment is invalid; raised before a lock is acquired."""


def shown(lock_name: str) -> str:
    """Return a lock's name for messages: control characters escaped, at most 80 characters."""
    text = repr(lock_name)
    return text if len(text) <= 80 else f"{text[:60]}…{text[-15:]}"


def shortened(identifier: str | None) -> str | None:
    """Return the beginning of an identifier: enough to compare, not enough to release the lock."""
    if not identifier:
        return None
    return repr(identifier[: min(8, len(identifier) // 2)])[1:-1] + "…"


def in_seconds(seconds: float) -> str:
    """Return a duration for messages: three digits, or all before the point; no exponent."""
    if abs(seconds) >= 999.5:
        return f"{seconds:.0f} s"
    return f"{seconds:.6f} s" if 0 < abs(seconds) < 0.0001 else f"{seconds:.3g} s"


def described(owner: Mapping[str, Any], held_for: float | None = None) -> str:
    """Return the information about a holder for messages; control characters are escaped."""
    others = {name: value for name, value in owner.items() if name not in _PLACE}
    place = ":".join([_plain(owner[name]) for name in ("host", "pid") if name in owner])
    parts = [place] if place else []
    parts += [f"{_plain(name)} {_plain(value)}" for name, value in others.items()]
    if held_for is not None:
        parts.append(f"for {in_seconds(held_for)}")
    text = ", ".join(parts)
    return text if len(text) <= 400 else f"{text[:399]}…"


def _plain(value: object) -> str:
    text = repr(str(value))[1:-1]
    return text if len(text) <= 80 else f"{text[:60]}…{text[-15:]}"


@cache
def _page() -> str:
    """Return the address of the page about errors; "" if the installed package names no site.

    Called when a message is shown, not when an error is raised: to read the metadata takes long.
    """
    try:
        lines = metadata("redis_lock_decorators").get_all("Project-URL") or []
    except Exception:  # as in a copy that is not installed, or when the interpreter shuts down
        return ""
    urls = dict(line.partition(",")[::2] for line in lines)
    site = urls.get("Documentation", "").strip().rstrip("/")
    return f"{site}/reference/errors.html" if site else ""


def _anchor(kind: type[LockError]) -> str:
    """Return the place of an error on that page, such as "lock-timeout"; of ours, not of users."""
    ours = next(one for one in kind.__mro__ if one.__module__ == __name__)
    return re.sub("(?<!^)(?=[A-Z])", "-", ours.__name__.removesuffix("Error")).lower()


def _rebuild(
    kind: type[LockError], arguments: tuple[object, ...], attributes: dict[str, object]
) -> LockError:
    # The inherited __new__ is ValueError's, which cannot create an OSError such as TimeoutError.
    base = OSError if issubclass(kind, OSError) else Exception
    error: LockError = base.__new__(kind, *arguments)
    error.args = arguments
    error.__dict__.update(attributes)
    return error
