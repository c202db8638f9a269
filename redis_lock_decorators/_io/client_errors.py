"""What a client's exception means, told by names: clients differ in where they define them."""

from __future__ import annotations

import copy
import importlib
from typing import Any, TypeVar

from redis_lock_decorators.errors import LockError

E = TypeVar("E", bound=BaseException)

_CLIENTS = frozenset({"redis", "valkey", "rediscluster"})
_CUT = frozenset(
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
#: Sentences of pools, of those that raise at once and of those that wait.
_USED_UP = ("Too many connections", "No connection available.")
#: Sentences of a cluster client that found nobody to ask.
_NO_CLUSTER = ("cannot be connected", "not covered")
_DEFINITE = frozenset({"AuthenticationError", "AuthorizationError"})
#: Errors that clients raise for a server's answer, but as errors of the connection.
_ANSWERS = _DEFINITE | {"BusyLoadingError"}
_NO_COMMAND = ("unknown command", "command doesn't exist")
#: What pipelines say of a key that has changed, and before an error reply to one of their commands.
_CHANGED = "variable changed"
_IN_PIPELINE = "of pipeline caused error: "
#: What is said of EXEC where it is not allowed itself, and where its MULTI was not.
_ABORTED, _NO_MULTI = "discarded because of: noperm", "exec without multi"
#: What is said of a right that is missing inside a script: since Redis 7.0, and in 6.
_NO_RIGHT = ("acl failure in script", "the user executing the script can't", _ABORTED)
#: What a server replies that is no master, not any more, or not yet.
_ELSEWHERE = frozenset({"READONLY", "MASTERDOWN", "LOADING", "NOREPLICAS", "UNBLOCKED"})
#: What a replica says to WAIT, which comes without a code.
_WAIT_AT_REPLICA = "WAIT cannot be used with replica"
#: What passes by itself in seconds, as when a failover is over or a replica is back. Not OOM and
#: MISCONF: memory or a disk that is full waits for somebody, who is told at once.
_PASSING = _ELSEWHERE | {"BUSY", "TRYAGAIN", "CLUSTERDOWN", "UNKILLABLE"}
_ELSEWHERE_NAMES = frozenset({"ReadOnlyError", "MasterDownError", "BusyLoadingError"})


def part_of(client: object, module: str) -> Any:
    """A module of the library that a client, a pool or a connection comes from."""
    homes = [kind.__module__.partition(".")[0] for kind in type(client).__mro__]
    home = "valkey" if "valkey" in homes else "redis"
    return importlib.import_module(f"{home}.{module}")


def no_reply(client: object) -> Exception:
    """The TimeoutError of the library that a client, a pool or a connection comes from."""
    error: Exception = part_of(client, "exceptions").TimeoutError("no reply came in time")
    return error


def closed(client: object, why: str = "the connection was closed") -> Exception:
    """The ConnectionError of the library that a client, a pool or a connection comes from."""
    error: Exception = part_of(client, "exceptions").ConnectionError(why)
    return error


def garbled(client: object, why: str) -> Exception:
    """The InvalidResponse of that library, for bytes that are no reply."""
    error: Exception = part_of(client, "exceptions").InvalidResponse(why)
    return error


def moved(client: object) -> Exception:
    """The ConnectionError of the library that a client comes from, for a slot that has moved."""
    error: Exception = part_of(client, "exceptions").ConnectionError("the slot moved meanwhile")
    return error


def is_unknown(error: Exception) -> bool:
    """Whether the command may or may not have been run, or could be run a moment later."""
    names = _client_names(error)
    if names & _DEFINITE:
        return False
    if is_cut(error):
        return True
    if "RedisClusterException" in names and any(part in str(error) for part in _NO_CLUSTER):
        return True
    return bool(names & _CUT or _codes(error) & _PASSING)


def is_outcome(error: BaseException) -> bool:
    """Whether a request ended with this error; if not, it was raised from outside meanwhile.

    So do signal handlers, at whatever line the program is then.
    """
    if isinstance(error, OSError) and is_of_socket(error):
        return True
    if isinstance(error, LockError) or is_cut(error):
        return True
    return isinstance(error, Exception) and _is_clients(error)


def was_sent(error: BaseException) -> bool:
    """Whether a byte of the request behind this error may have reached a server."""
    return not getattr(error, "unsent", False)


def unsent(error: E) -> E:
    """The error, marked as one that came before a byte of the request had left."""
    error.unsent = True  # type: ignore[attr-defined]
    return error


def own_copy(error: Exception) -> Exception:
    """An error for one of several requests that failed together: marks are its own."""
    try:
        found = copy.copy(error)
    except Exception:  # its class cannot be copied
        return error
    return caused(found, error)


def caused(error: E, cause: BaseException) -> E:
    """The error, with what led to it."""
    error.__cause__ = cause
    return error


def is_reply(error: BaseException) -> bool:
    """Whether the error was the server's answer, so that the connection is in order."""
    return "ResponseError" in _client_names(error)


def is_answer(error: BaseException) -> bool:
    """Whether a server said so, to a command or to who it is asked by."""
    return is_reply(error) or bool(_client_names(error) & _ANSWERS)


def is_elsewhere(reply: object) -> bool:
    """Whether the server replied that it is not the one to ask, at least not now.

    After a failover behind one address, a new connection may reach the one that is.
    """
    if not isinstance(reply, Exception):
        return False
    return bool(_client_names(reply) & _ELSEWHERE_NAMES or _codes(reply) & _ELSEWHERE)


def are_elsewhere(replies: list[Any]) -> bool:
    """Whether one of several replies is such."""
    return any(is_elsewhere(reply) for reply in replies if isinstance(reply, Exception))


def keeps_connection(reply: Any) -> bool:
    """Whether the connection that a reply came over is in order, and to the right server."""
    return not isinstance(reply, Exception) or (is_reply(reply) and not is_elsewhere(reply))


def is_cut(error: BaseException) -> bool:
    """Whether a connection was closed by somebody else while its library used it.

    Libraries do not expect that: a part of the connection is None then.
    """
    if type(error) is not AttributeError or getattr(error, "obj", None) is not None:
        return False
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    name: str = trace.tb_frame.f_globals.get("__name__", "") if trace is not None else ""
    return name.partition(".")[0] in _CLIENTS  # else it is a hook's, or a signal handler's


def is_change(error: Exception) -> bool:
    """Whether EXEC did nothing as a key had changed that was watched."""
    return "WatchError" in _client_names(error) and _CHANGED in str(error)


def is_no_transaction(error: Exception) -> bool:
    """Whether commands were run one by one, as the MULTI before them was refused."""
    return _is_clients(error) and _NO_MULTI in str(error).lower()


def meant(client: object, error: Exception) -> Exception:
    """The error, or what the client means by it.

    A pipeline whose connection broke while it watched a key raises the error of a key that has
    changed, though EXEC may have been run; see also ``is_cut``.
    """
    if is_cut(error):
        return caused(closed(client, "the connection was closed meanwhile"), error)
    if "WatchError" not in _client_names(error) or is_change(error):
        return error
    return caused(closed(client, f"the connection broke: {error}"), error)


def is_of_socket(error: OSError) -> bool:
    """Whether a socket raised this, and no signal handler meanwhile: its errors are the user's."""
    return error.errno is not None or str(error).endswith("timed out")


def is_used_up(error: Exception) -> bool:
    """Whether a pool had no connection left to give."""
    return "MaxConnectionsError" in _client_names(error) or str(error) in _USED_UP


def lacks(error: Exception) -> str:
    """What is missing: "script", "command", "right", "memory", "string" (in a key), "keys" or "".

    Keys are missing that lie on two nodes, while their slot moves from one to the other.
    """
    if "NoScriptError" in _client_names(error) or "NOSCRIPT" in _codes(error):
        return "script"
    if "WRONGTYPE" in _codes(error):
        return "string"
    if "NoPermissionError" in _client_names(error) or "NOPERM" in _codes(error):
        return "right"
    if "OutOfMemoryError" in _client_names(error) or "OOM" in _codes(error):
        return "memory"
    if _is_torn(error):
        return "keys"
    if not _is_clients(error):
        return ""
    sentence = str(error).lower()
    if any(part in sentence for part in _NO_RIGHT):
        return "right"
    return "command" if any(part in sentence for part in _NO_COMMAND) else ""


def _is_torn(error: Exception) -> bool:
    names = _client_names(error)
    # A cluster's client asks again a few times, and then tells only that it did.
    has_given_up = "ClusterError" in names and "TTL exhausted" in str(error)
    return has_given_up or "TryAgainError" in names or "TRYAGAIN" in _codes(error)


def _is_clients(error: BaseException) -> bool:
    return bool(_client_names(error))


def _client_names(error: BaseException) -> set[str]:
    # Only the clients' own: a TimeoutError that a signal handler raises is the user's.
    return {
        kind.__name__
        for kind in type(error).__mro__
        if kind.__module__.partition(".")[0] in _CLIENTS
    }


def _codes(error: BaseException) -> set[str]:
    # Redis 6.2 and 7.0 tell of a failed call inside a script in the middle of a sentence.
    if not _client_names(error):
        return set()
    sentence = str(error).rpartition(_IN_PIPELINE)[2]
    if _WAIT_AT_REPLICA in sentence:
        return {"READONLY"}
    # Pipelines of asyncio put in the error's arguments as Python writes them.
    words = [word.lstrip("-('\"") for word in sentence.split()]
    return set(words if "@user_script" in str(error) else words[:1])
