"""Error replies of servers, by class name and message: each library defines its own classes."""

from __future__ import annotations

from redis_lock_decorators._io.hook_errors import CLIENTS, is_of_handler

DEFINITE = frozenset({"AuthenticationError", "AuthorizationError"})
#: Errors that clients raise for a server's answer, but as errors of the connection.
_ANSWERS = DEFINITE | {"BusyLoadingError"}
_NO_COMMAND = ("unknown command", "command doesn't exist")
#: Parts of messages of pipelines: a watched key has changed; an error reply to a command follows.
_CHANGED = "variable changed"
_IN_PIPELINE = "of pipeline caused error: "
#: Error replies to EXEC: EXEC is not permitted; MULTI was not permitted.
_ABORTED, _NO_MULTI = "discarded because of: noperm", "exec without multi"
#: Error replies for a missing permission inside a script: since Redis 7.0, and in Redis 6.
_NO_RIGHT = ("acl failure in script", "the user executing the script can't", _ABORTED)
#: A part of the error reply inside a script, whose slot is being moved.
_MOVED_KEY = "attempted to access a non local key in a cluster node"
#: Error codes of a server that is not the master, or not yet, or no longer.
_ELSEWHERE = frozenset({"READONLY", "MASTERDOWN", "LOADING", "NOREPLICAS", "UNBLOCKED"})
#: The error reply of a replica to WAIT, which has no code.
_WAIT_AT_REPLICA = "WAIT cannot be used with replica"
#: Error codes of states that end on their own in seconds, such as a failover. Not OOM and MISCONF:
#: an administrator must free memory or disk space, so they are reported immediately.
TRANSIENT = _ELSEWHERE | {"BUSY", "TRYAGAIN", "CLUSTERDOWN", "UNKILLABLE"}
_ELSEWHERE_NAMES = frozenset({"ReadOnlyError", "MasterDownError", "BusyLoadingError"})


def is_reply(error: BaseException) -> bool:
    """Whether the error is an error reply, so the connection remains usable."""
    return "ResponseError" in client_names(error) and not is_of_handler(error)


def is_answer(error: BaseException) -> bool:
    """Whether a server sent the error, as a reply to a command or to the authentication."""
    return is_reply(error) or bool(client_names(error) & _ANSWERS)


def is_elsewhere(reply: object) -> bool:
    """Whether the server replied that it is not the master, at least not now.

    After a failover behind one address, a new connection may reach the master.
    """
    if not isinstance(reply, Exception):
        return False
    return bool(client_names(reply) & _ELSEWHERE_NAMES or codes(reply) & _ELSEWHERE)


def is_redirection(error: BaseException) -> bool:
    """Whether a cluster node replied that another one serves the keys (MOVED, ASK)."""
    return "AskError" in client_names(error)  # MovedError is a subclass


def is_ask(error: object) -> bool:
    """Whether a redirection holds for one command only, as the slot is still being moved."""
    return type(error).__name__ == "AskError"


def is_change(error: Exception) -> bool:
    """Whether EXEC did nothing because a watched key had changed."""
    return "WatchError" in client_names(error) and _CHANGED in str(error)


def is_no_transaction(error: Exception) -> bool:
    """Whether commands were run one by one because their MULTI was refused."""
    return is_clients(error) and _NO_MULTI in str(error).lower()


def lacks(error: Exception) -> str:
    """What is missing: "script", "command", "right", "memory", "string" (in a key), "keys" or "".

    "keys" are missing while their slot migrates, if they are on two nodes. A "moved key" is missing
    in the middle of a script that has emptied it: what the script did before remains.
    """
    if is_of_handler(error):
        return ""
    if "NoScriptError" in client_names(error) or "NOSCRIPT" in codes(error):
        return "script"
    if "WRONGTYPE" in codes(error):
        return "string"
    if "NoPermissionError" in client_names(error) or "NOPERM" in codes(error):
        return "right"
    if "OutOfMemoryError" in client_names(error) or "OOM" in codes(error):
        return "memory"
    if _is_slot_split(error):
        return "keys"
    if not is_clients(error):
        return ""
    if is_moved_key(error):
        return "moved key"
    sentence = str(error).lower()
    if any(part in sentence for part in _NO_RIGHT):
        return "right"
    return "command" if any(part in sentence for part in _NO_COMMAND) else ""


def is_moved_key(error: Exception) -> bool:
    """Whether a script failed at a key that it had emptied itself, as its slot is being moved."""
    return is_clients(error) and _MOVED_KEY in str(error).lower()


def _is_slot_split(error: Exception) -> bool:
    names = client_names(error)
    # A cluster client repeats the command a few times, and then reports only that it gave up.
    has_given_up = "ClusterError" in names and "TTL exhausted" in str(error)
    return has_given_up or "TryAgainError" in names or "TRYAGAIN" in codes(error)


def is_clients(error: BaseException) -> bool:
    """Whether the class of the error is of a client library."""
    return bool(client_names(error))


def client_names(error: BaseException) -> set[str]:
    """The names of the classes of an error that are of a client library."""
    # Only of the libraries: a signal handler may raise a TimeoutError of the program.
    return {
        kind.__name__
        for kind in type(error).__mro__
        if kind.__module__.partition(".")[0] in CLIENTS
    }


def codes(error: BaseException) -> set[str]:
    """The error codes that a reply may have, such as READONLY."""
    # Redis 6.2 and 7.0 report a failed call inside a script in the middle of a sentence.
    if not client_names(error):
        return set()
    sentence = str(error).rpartition(_IN_PIPELINE)[2]
    if _WAIT_AT_REPLICA in sentence:
        return {"READONLY"}
    # Asyncio pipelines insert the ``repr`` of the error's arguments.
    words = [word.lstrip("-('\"") for word in sentence.split()]
    return set(words if "@user_script" in str(error) else words[:1])
