"""Distinguish errors of the interpreter from those that a signal handler raises in its place."""

from __future__ import annotations


def is_from_python(error: RuntimeError | ValueError, text: str) -> bool:
    """Whether the interpreter raised this error, whose message contains ``text``.

    Raise any other again: it comes from a signal handler, or is a RecursionError.
    """
    return type(error) in (RuntimeError, ValueError) and text in str(error)


#: A dict, OrderedDict or deque was changed by another thread during an iteration.
CHANGED = "during iteration"
#: A ``threading.Lock`` was released by another thread first.
RELEASED = "release"
#: An integer has more digits than Python writes.
DIGITS = "integer string conversion"
#: The code runs outside an event loop.
NO_LOOP = "no running event loop"
