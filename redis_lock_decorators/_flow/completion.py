"""An attempt to release keys that goes on if its caller is cancelled, as a claim refers to it."""

from __future__ import annotations

from typing import Any


class Completion:
    """The attempt's outcome, once it has one.

    Attributes:
        keys: the keys to be released.
        is_done: the attempt has ended.
        refusal: why a key was not released, a ``Refusal``; None if all were.
        error: the error by which it failed.
    """

    __slots__ = ("error", "is_done", "keys", "refusal")

    def __init__(self, keys: tuple[bytes, ...]) -> None:
        self.keys = keys
        self.is_done = False
        self.refusal: Any = None
        self.error: Exception | None = None
