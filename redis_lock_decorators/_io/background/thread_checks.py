"""Refusals of locks that need a thread, before they are acquired."""

from __future__ import annotations

import threading

from redis_lock_decorators._flow.claim import Claim
from redis_lock_decorators._io.background.hubs import half_patched
from redis_lock_decorators._rules.redaction import safe_text
from redis_lock_decorators.errors import ConfigurationError, shown

#: Uses of locks that need no thread.
_WITHOUT = (
    'auto_renew=False, no on_lost, no hooks, and wait="poll" (a Lock of redis-py: blocking=False)'
)
#: A thread that was created, as this interpreter allows it. Kept: where one is deleted, Python runs
#: code of its own that swallows exceptions from outside.
_probe: threading.Thread | None = None
_PATCH_BOTH = {"gevent": "gevent.monkey.patch_all()", "eventlet": "eventlet.monkey_patch()"}


def refuse_threadless(claim: Claim | None = None) -> None:
    """Refuse background work where no thread can do it.

    Raises:
        ConfigurationError: this is an isolated subinterpreter, or the program is half patched.
    """
    global _probe
    refuse_half_patched(claim)
    if _probe is not None:
        return
    try:
        _probe = threading.Thread(daemon=True)
    except RuntimeError as error:
        raise _refusal(
            claim, f"in this interpreter ({safe_text(error)}): use {_WITHOUT} here"
        ) from error


def refuse_half_patched(claim: Claim | None = None) -> None:
    """Refuse to wait for messages where sockets are used by greenlets, but threads are native.

    Raises:
        ConfigurationError: the program is half patched.
    """
    library = half_patched()
    if library:
        raise _refusal(
            claim,
            f"as {library} has replaced the sockets of this program, but not its threads "
            f"(thread=False): patch both by {_PATCH_BOTH[library]}, or use {_WITHOUT}",
        )


def _refusal(claim: Claim | None, why: str) -> ConfigurationError:
    lock_name = None if claim is None else claim.lock_name
    what = "locks" if lock_name is None else f"lock {shown(lock_name)}"
    return ConfigurationError(
        f"no thread can renew {what} or receive its messages {why}", lock_name
    )
