"""The meaning of clients' exceptions for requests, and exceptions of a client's library."""

from __future__ import annotations

import copy
import importlib
from asyncio import CancelledError
from typing import Any, TypeVar

from redis_lock_decorators._io.error_replies import (
    DEFINITE,
    TRANSIENT,
    client_names,
    codes,
    is_change,
    is_clients,
    is_elsewhere,
    is_moved_key,
    is_reply,
)
from redis_lock_decorators._io.hook_errors import (
    CLIENTS,
    is_of_handler,
    is_of_hook,
    mark_handler,
    mark_hook,
    unconverted,
)
from redis_lock_decorators._rules.marks import marked
from redis_lock_decorators.errors import LockError

#: Classes of exceptions that Python makes anew each time.
_ALWAYS_NEW = (CancelledError, GeneratorExit, KeyboardInterrupt, StopIteration, SystemExit)

E = TypeVar("E", bound=BaseException)

_INTERRUPTED = frozenset(
    {
        "ConnectionError",
        "InvalidResponse",
        "TimeoutError",
        "ReadOnlyError",
        "TryAgainError",
        "ClusterDownError",
        "MasterDownError",
        "SlotNotCoveredError",
        "ClusterError",
    }
)
#: Parts of the message of a cluster client that reached no node, or that repeats a pipeline after a
#: failure and no longer has the node to which a command without a key was to be sent.
_NO_CLUSTER = ("cannot be connected", "not covered", "No way to dispatch")
#: Errors after which a cluster client looks up its nodes.
_BROKEN = frozenset({"ConnectionError", "TimeoutError", "ClusterDownError"})


class PoolReplaced(LockError):
    """The client has a pool of the program's own class now, whose connections cannot be imitated.

    Nothing was sent. A repetition uses the client's own methods.
    """

    unsent = True


def part_of(client: object, module: str) -> Any:
    """Import a module of the library that defines the class of a client, pool or connection."""
    return importlib.import_module(f"{home(client)}.{module}")


def home(client: object) -> str:
    """The package of the library that defines the class of a client, pool or connection."""
    packages = {kind.__module__.partition(".")[0] for kind in type(client).__mro__}
    return "valkey" if "valkey" in packages else "redis"


def no_reply(client: object) -> Exception:
    """A TimeoutError of the client's library."""
    return _new_error(client, "TimeoutError", "no reply came in time")


def closed(client: object, why: str = "the connection was closed") -> Exception:
    """A ConnectionError of the client's library."""
    return _new_error(client, "ConnectionError", why)


def garbled(client: object, why: str) -> Exception:
    """An InvalidResponse of the client's library, for bytes that are no reply."""
    return _new_error(client, "InvalidResponse", why)


def moved(client: object, *, asks: bool = False) -> Exception:
    """A ConnectionError of the client's library, for a slot that moved during a pipeline.

    With ``asks`` it is still being moved (ASK): a TryAgainError, as for keys on two nodes.
    """
    if asks:
        return _new_error(client, "TryAgainError", "the slot is being moved")
    return closed(client, "the slot moved meanwhile")


def _new_error(client: object, name: str, why: str) -> Exception:
    error: Exception = getattr(part_of(client, "exceptions"), name)(why)
    return error


def is_unknown(error: Exception) -> bool:
    """Whether the command may have been run, or could be run a moment later."""
    if is_of_handler(error):
        return False
    if isinstance(error, PoolReplaced):
        return True
    names = client_names(error)
    if names & DEFINITE:
        return False
    if is_closed_meanwhile(error):
        return True
    if "RedisClusterException" in names and any(part in str(error) for part in _NO_CLUSTER):
        return True
    if not names:
        return is_of_hook(error)
    return bool(names & _INTERRUPTED or codes(error) & TRANSIENT or is_moved_key(error))


def is_timeout(error: Exception) -> bool:
    """Whether a client's library gave up waiting for a server."""
    found = unconverted(error)
    return "TimeoutError" in client_names(found) and not is_of_handler(found)


def is_outcome(error: BaseException) -> bool:
    """Whether a request ended with this error; otherwise it was raised by a signal handler.

    Signal handlers may raise an exception of any class at any line, also that of a request of their
    own. See ``hook_errors`` for those of the program's code that a library calls.
    """
    if not isinstance(error, Exception) or is_of_handler(error):
        return False
    if isinstance(error, OSError) and _is_like_one_of_socket(error):
        return True
    if isinstance(error, LockError) or is_closed_meanwhile(error):
        return True
    return is_clients(error) or is_of_hook(error)


def was_sent(error: BaseException) -> bool:
    """Whether a byte of the request behind this error may have reached a server."""
    return not getattr(error, "unsent", False)


def mark_unsent(error: E) -> E:
    """Mark an error as raised before a byte of the request was sent, and return it."""
    return marked(error, "unsent")


def mark_caught(error: E) -> E:
    """The same for an error that was caught, and may be one of the program.

    A program may raise one exception object again and again, as a ``gevent.Timeout``: the mark
    would be wrong the next time. So only errors of requests get it, and those that are always new.
    """
    return mark_unsent(error) if type(error) in _ALWAYS_NEW or is_outcome(error) else error


def own_copy(error: Exception) -> Exception:
    """Copy an error for each of several requests that failed together: marks are not shared."""
    try:
        found = copy.copy(mark_handler(error))
    except Exception:  # its class cannot be copied
        return error
    return caused(found, error)


def caused(error: E, cause: BaseException) -> E:
    """Set the cause of an error, and return it."""
    return marked(error, "__cause__", cause)


def is_broken(error: object) -> bool:
    """Whether a cluster node gave no answer, or none while its cluster is down."""
    return isinstance(error, Exception) and bool(client_names(error) & _BROKEN)


def are_elsewhere(replies: list[Any]) -> bool:
    """Whether ``is_elsewhere`` holds for any of these replies."""
    return any(is_elsewhere(reply) for reply in replies if isinstance(reply, Exception))


def keeps_connection(reply: Any) -> bool:
    """Whether the connection of a reply is usable, and leads to the master."""
    return not isinstance(reply, Exception) or (is_reply(reply) and not is_elsewhere(reply))


def is_closed_meanwhile(error: BaseException) -> bool:
    """Whether other code closed the connection while the library used it.

    Libraries do not expect that: they fail with an AttributeError of None.
    """
    if type(error) is not AttributeError or getattr(error, "obj", None) is not None:
        return False
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    name: str = trace.tb_frame.f_globals.get("__name__", "") if trace is not None else ""
    return name.partition(".")[0] in CLIENTS  # otherwise a hook or a signal handler raised it


def meant(client: object, error: Exception) -> Exception:
    """Translate a misleading error into a ConnectionError; return other errors as they are.

    If the connection breaks while a pipeline watches a key, the pipeline raises WatchError, as for
    a changed key, although EXEC may have been run. See also ``is_closed_meanwhile``. If it comes
    from an exception of a signal handler, that is returned.
    """
    error = unconverted(error)
    if is_closed_meanwhile(error):
        return caused(closed(client, "the connection was closed meanwhile"), error)
    if "WatchError" not in client_names(error) or is_change(error):
        return mark_hook(error)
    return caused(closed(client, f"the connection broke: {error}"), error)


def failure(client: object, error: BaseException) -> Exception:
    """The meaning of an error of a client's methods.

    One that is no failure is raised: Ctrl-C, or an exception of a signal handler.
    """
    if not isinstance(error, Exception):
        raise error
    found = meant(client, error)
    if is_of_handler(found):
        raise found from found.__cause__
    return found


def is_of_socket(error: OSError) -> bool:
    """Whether a socket raised this error, and not a signal handler."""
    return _is_like_one_of_socket(error) and not is_of_handler(error)


def _is_like_one_of_socket(error: OSError) -> bool:
    return error.errno is not None or str(error).endswith("timed out")
