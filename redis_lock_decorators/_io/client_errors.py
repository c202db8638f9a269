"""The meaning of clients' exceptions, by class name: each library defines its own classes."""

from __future__ import annotations

import copy
import importlib
from asyncio import CancelledError
from typing import Any, TypeVar

from redis_lock_decorators._io.hook_errors import (
    CLIENTS,
    is_caught_by_library,
    is_of_handler,
    is_of_hook,
    is_raised_by_library,
    mark_handler,
    mark_hook,
    unconverted,
)
from redis_lock_decorators._rules.marks import marked
from redis_lock_decorators.errors import LockError

#: Classes of exceptions that Python makes anew each time.
_ALWAYS_NEW = (CancelledError, GeneratorExit, KeyboardInterrupt, StopIteration, SystemExit)

E = TypeVar("E", bound=BaseException)

#: How many causes of an error are looked at.
MAX_CAUSES = 10

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
_DEFINITE = frozenset({"AuthenticationError", "AuthorizationError"})
#: Errors that clients raise for a server's answer, but as errors of the connection.
_ANSWERS = _DEFINITE | {"BusyLoadingError"}
_NO_COMMAND = ("unknown command", "command doesn't exist")
#: Parts of messages of pipelines: a watched key has changed; an error reply to a command follows.
_CHANGED = "variable changed"
_IN_PIPELINE = "of pipeline caused error: "
#: Error replies to EXEC: EXEC is not permitted; MULTI was not permitted.
_ABORTED, _NO_MULTI = "discarded because of: noperm", "exec without multi"
#: Error replies for a missing permission inside a script: since Redis 7.0, and in Redis 6.
_NO_RIGHT = ("acl failure in script", "the user executing the script can't", _ABORTED)
#: Error codes of a server that is not the master, or not yet, or no longer.
_ELSEWHERE = frozenset({"READONLY", "MASTERDOWN", "LOADING", "NOREPLICAS", "UNBLOCKED"})
#: The error reply of a replica to WAIT, which has no code.
_WAIT_AT_REPLICA = "WAIT cannot be used with replica"
#: Error codes of states that end on their own in seconds, such as a failover. Not OOM and MISCONF:
#: an administrator must free memory or disk space, so they are reported immediately.
_TRANSIENT = _ELSEWHERE | {"BUSY", "TRYAGAIN", "CLUSTERDOWN", "UNKILLABLE"}
#: Errors after which a cluster client looks up its nodes.
_BROKEN = frozenset({"ConnectionError", "TimeoutError", "ClusterDownError"})
_ELSEWHERE_NAMES = frozenset({"ReadOnlyError", "MasterDownError", "BusyLoadingError"})


class PoolReplaced(LockError):
    """The client has a pool of the program's own class now, whose connections cannot be imitated.

    Nothing was sent. A repetition uses the client's own methods.
    """

    unsent = True


def part_of(client: object, module: str) -> Any:
    """Import a module of the library that defines the class of a client, pool or connection."""
    return importlib.import_module(f"{_home(client)}.{module}")


def _home(client: object) -> str:
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
    names = _client_names(error)
    if names & _DEFINITE:
        return False
    if is_closed_meanwhile(error):
        return True
    if "RedisClusterException" in names and any(part in str(error) for part in _NO_CLUSTER):
        return True
    if not names:
        return is_of_hook(error)
    return bool(names & _INTERRUPTED or _codes(error) & _TRANSIENT)


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


def is_reply(error: BaseException) -> bool:
    """Whether the error is an error reply, so the connection remains usable."""
    return "ResponseError" in _client_names(error) and not is_of_handler(error)


def is_answer(error: BaseException) -> bool:
    """Whether a server sent the error, as a reply to a command or to the authentication."""
    return is_reply(error) or bool(_client_names(error) & _ANSWERS)


def is_elsewhere(reply: object) -> bool:
    """Whether the server replied that it is not the master, at least not now.

    After a failover behind one address, a new connection may reach the master.
    """
    if not isinstance(reply, Exception):
        return False
    return bool(_client_names(reply) & _ELSEWHERE_NAMES or _codes(reply) & _ELSEWHERE)


def is_redirection(error: BaseException) -> bool:
    """Whether a cluster node replied that another one serves the keys (MOVED, ASK)."""
    return "AskError" in _client_names(error)  # MovedError is a subclass


def is_ask(error: object) -> bool:
    """Whether a redirection holds for one command only, as the slot is still being moved."""
    return type(error).__name__ == "AskError"


def is_broken(error: object) -> bool:
    """Whether a cluster node gave no answer, or none while its cluster is down."""
    return isinstance(error, Exception) and bool(_client_names(error) & _BROKEN)


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


def is_change(error: Exception) -> bool:
    """Whether EXEC did nothing because a watched key had changed."""
    return "WatchError" in _client_names(error) and _CHANGED in str(error)


def is_no_transaction(error: Exception) -> bool:
    """Whether commands were run one by one because their MULTI was refused."""
    return is_clients(error) and _NO_MULTI in str(error).lower()


def meant(client: object, error: Exception) -> Exception:
    """Translate a misleading error into a ConnectionError; return other errors as they are.

    If the connection breaks while a pipeline watches a key, the pipeline raises WatchError, as for
    a changed key, although EXEC may have been run. See also ``is_closed_meanwhile``. If it comes
    from an exception of a signal handler, that is returned.
    """
    error = unconverted(error)
    if is_closed_meanwhile(error):
        return caused(closed(client, "the connection was closed meanwhile"), error)
    if "WatchError" not in _client_names(error) or is_change(error):
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


def lacks(error: Exception) -> str:
    """What is missing: "script", "command", "right", "memory", "string" (in a key), "keys" or "".

    "keys" are missing while their slot migrates, if they are on two nodes.
    """
    if is_of_handler(error):
        return ""
    if "NoScriptError" in _client_names(error) or "NOSCRIPT" in _codes(error):
        return "script"
    if "WRONGTYPE" in _codes(error):
        return "string"
    if "NoPermissionError" in _client_names(error) or "NOPERM" in _codes(error):
        return "right"
    if "OutOfMemoryError" in _client_names(error) or "OOM" in _codes(error):
        return "memory"
    if _is_slot_split(error):
        return "keys"
    if not is_clients(error):
        return ""
    sentence = str(error).lower()
    if any(part in sentence for part in _NO_RIGHT):
        return "right"
    return "command" if any(part in sentence for part in _NO_COMMAND) else ""


def _is_slot_split(error: Exception) -> bool:
    names = _client_names(error)
    # A cluster client repeats the command a few times, and then reports only that it gave up.
    has_given_up = "ClusterError" in names and "TTL exhausted" in str(error)
    return has_given_up or "TryAgainError" in names or "TRYAGAIN" in _codes(error)


def is_clients(error: BaseException) -> bool:
    """Whether the class of the error is of a client library."""
    return bool(_client_names(error))


def may_leave_unconfigured(client: object, error: BaseException) -> bool:
    """Whether an error may come from the set-up of a connection that the library left open.

    It leaves it open after errors that are not its own. A wrapped client may have turned one of
    these into an error of the library: then that was raised by other code, or it has a cause that
    other code has caught, or one that is neither a socket's nor the library's.
    """
    own = {_home(client), "rediscluster"}
    if own.isdisjoint(_packages(error)):
        return True
    if not is_raised_by_library(error) and not is_reply(error):
        return True
    cause = error.__cause__ or error.__context__
    for _ in range(MAX_CAUSES):
        if cause is None:
            break
        is_usual = isinstance(cause, (OSError, EOFError)) or _is_cancellation(cause)
        if not is_usual and own.isdisjoint(_packages(cause)):
            return True
        if not is_caught_by_library(cause):
            return True
        cause = cause.__cause__ or cause.__context__
    return False


def _is_cancellation(error: BaseException) -> bool:
    return type(error).__name__ == "CancelledError"  # asyncio would be imported for its class


def _packages(error: BaseException) -> set[str]:
    return {kind.__module__.partition(".")[0] for kind in type(error).__mro__}


def _client_names(error: BaseException) -> set[str]:
    # Only of the libraries: a signal handler may raise a TimeoutError of the program.
    return {
        kind.__name__
        for kind in type(error).__mro__
        if kind.__module__.partition(".")[0] in CLIENTS
    }


def _codes(error: BaseException) -> set[str]:
    # Redis 6.2 and 7.0 report a failed call inside a script in the middle of a sentence.
    if not _client_names(error):
        return set()
    sentence = str(error).rpartition(_IN_PIPELINE)[2]
    if _WAIT_AT_REPLICA in sentence:
        return {"READONLY"}
    # Asyncio pipelines insert the ``repr`` of the error's arguments.
    words = [word.lstrip("-('\"") for word in sentence.split()]
    return set(words if "@user_script" in str(error) else words[:1])
