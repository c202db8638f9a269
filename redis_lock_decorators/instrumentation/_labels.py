"""The labels of metrics, whose number is limited."""

from __future__ import annotations

from collections.abc import Callable

from redis_lock_decorators.events import LockEvent

#: The label of the locks for which there is no other one.
OTHER = "other"


class Labels:
    """Labels of locks; a metrics server keeps a time series for each one.

    Args:
        label: returns the label for an event; None for its ``label``.
        most: how many different labels there may be; further ones become "other".
    """

    def __init__(self, label: Callable[[LockEvent], str] | None, most: int) -> None:
        self._label = label
        self._most = most
        self._known: set[str] = set()  #: any thread

    def of(self, event: LockEvent) -> str:
        """Return the label for an event."""
        label = readable(event.label if self._label is None else self._label(event))
        if label not in self._known:
            if len(self._known) >= self._most:
                return OTHER
            self._known.add(label)
        return label


def readable(text: str) -> str:
    """A text that can be encoded: a lock's name may contain bytes that are no UTF-8."""
    return text if text.isascii() else text.encode(errors="backslashreplace").decode()
