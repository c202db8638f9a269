"""What reports the events of a claim to hooks, as the flows see it.

The claims in these signatures are ``Claim``, which imports this module.
"""

from __future__ import annotations

from typing import Any, Protocol


class Observer(Protocol):
    """Reports the events of one claim. Its methods call no code of the program.

    They can be called again after an exception from outside.

    Times are monotonic seconds.
    """

    def acquiring(self, claim: Any, now: float) -> None:
        """The acquisition begins."""

    def polls(self) -> None:
        """The claim tries again after pauses, outside a queue."""

    def acquired(self, claim: Any, now: float) -> None:
        """The lock is held."""

    def timed_out(self, claim: Any, now: float) -> None:
        """The lock was not free in time."""

    def failed(self, claim: Any, now: float, error: str) -> None:
        """An exception of this name ended the acquisition."""

    def renewed(self, claim: Any, now: float, took: float) -> None:
        """The lease is renewed; the claim still has the former deadline."""

    def unrenewed(self, claim: Any, now: float) -> None:
        """A renewal has failed, and is repeated."""

    def lost(self, claim: Any, now: float, why: str) -> None:
        """The lease is lost."""

    def ended(self, claim: Any, now: float, error: str = "") -> None:
        """The claim has ended; ``error`` is that of a release that failed."""
