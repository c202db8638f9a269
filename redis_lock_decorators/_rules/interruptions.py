"""Exceptions that a signal handler may raise in place of what the interpreter says."""

from __future__ import annotations


def is_said(error: RuntimeError, words: str) -> bool:
    """Whether the interpreter raised this, whose errors of that kind have these words.

    Else it is to be raised again: it came from a signal handler, or is a RecursionError.
    """
    return type(error) is RuntimeError and words in str(error)


#: Of what another thread changed meanwhile: a dict, an OrderedDict, a deque.
CHANGED = "during iteration"
#: Of a lock that another thread has released meanwhile.
RELEASED = "release"
#: Of code that runs outside event loops.
NO_LOOP = "no running event loop"
