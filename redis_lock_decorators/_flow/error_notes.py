"""Notes on the client's own exceptions: which lock was concerned."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from redis_lock_decorators._flow.claim import Claim
from redis_lock_decorators._flow.port import Port
from redis_lock_decorators._rules.marks import marked
from redis_lock_decorators.errors import LockError, in_seconds, shown


def add_note(port: Port, claim: Claim, error: BaseException, what: str, began: float) -> None:
    """Add a note to an error: the lock, what failed, for how long it was tried, and the server.

    The class of the error does not change: programs catch the client's own. Python 3.11 and later
    show notes in tracebacks.
    """
    if isinstance(error, LockError) or not port.is_outcome(error):
        return
    text = (
        f"lock {shown(claim.lock_name)} could not be {what}: tried for "
        f"{in_seconds(port.now() - began)} at {port.place()}"
    )
    notes = getattr(error, "__notes__", ())
    if text not in notes:
        marked(error, "__notes__", [*notes, text])  # add_note is of Python 3.11


@contextmanager
def adding_notes(port: Port, claim: Claim, what: str) -> Iterator[None]:
    """Add a note to errors of this block."""
    began = port.now()
    try:
        yield
    except BaseException as error:
        add_note(port, claim, error, what, began)
        raise
