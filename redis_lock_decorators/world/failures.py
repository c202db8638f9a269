"""What a client's exception means, told by names: clients differ in where they define them."""

from __future__ import annotations

_CUT = frozenset(
    {
        "ConnectionError",
        "TimeoutError",
        "ReadOnlyError",
        "TryAgainError",
        "ClusterDownError",
        "MasterDownError",
        "SlotNotCoveredError",
        "ClusterError",
    }
)
_DEFINITE = frozenset({"AuthenticationError", "AuthorizationError"})
_PASSING = frozenset(
    {"BUSY", "LOADING", "READONLY", "MASTERDOWN", "TRYAGAIN", "CLUSTERDOWN", "UNKILLABLE"}
)


def is_unknown(error: Exception) -> bool:
    """Whether the command may or may not have been run, or could be run a moment later."""
    names = _client_names(error)
    if names & _DEFINITE:
        return False
    return bool(names & _CUT) or _first_word(error) in _PASSING


def is_reply(error: BaseException) -> bool:
    """Whether the error was the server's answer, so that the connection is in order."""
    return "ResponseError" in _client_names(error)


def lacks(error: Exception) -> str:
    """What the server does not have: "script", "command" or ""."""
    if "NoScriptError" in _client_names(error) or _first_word(error) == "NOSCRIPT":
        return "script"
    return "command" if "unknown command" in str(error).lower() else ""


def _client_names(error: BaseException) -> set[str]:
    # Not the builtins of the same names: a signal handler's TimeoutError is the user's.
    return {kind.__name__ for kind in type(error).__mro__ if kind.__module__ != "builtins"}


def _first_word(error: Exception) -> str:
    return str(error).partition(" ")[0]
