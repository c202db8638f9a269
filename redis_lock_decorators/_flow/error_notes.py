"""What is added to a client's own error that ends a request about a lock."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from redis_lock_decorators._flow.claim import Claim
from redis_lock_decorators._flow.port import Port
from redis_lock_decorators.errors import LockError, shown


def note(port: Port, claim: Claim, error: BaseException, what: str, began: float) -> None:
    """Note on an error which lock was concerned, and for how long who was asked what.

    The error stays what it is: programs tell a broken connection by its class. From Python 3.11 on
    a note is shown with it.
    """
    if isinstance(error, LockError) or not port.is_outcome(error):
        return
    text = (
        f"lock {shown(claim.lock_name)} could not be {what}: tried for "
        f"{port.now() - began:.3g} s at {port.place()}"
    )
    notes = getattr(error, "__notes__", ())
    if text not in notes:
        error.__notes__ = [*notes, text]  # type: ignore[attr-defined]  # add_note is of Python 3.11


@contextmanager
def noted(port: Port, claim: Claim, what: str) -> Iterator[None]:
    """Note that on errors of this block."""
    began = port.now()
    try:
        yield
    except BaseException as error:
        note(port, claim, error, what, began)
        raise
