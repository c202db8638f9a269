"""How values are written for people."""

from __future__ import annotations

#: Identifiers up to this length, which may be names of holders, are shown whole.
SHORT = 16


def duration(seconds: float | None) -> str:
    """Write a duration in its two greatest units; None is a lease without an end."""
    if seconds is None:
        return "no end"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h"


def short_duration(seconds: float) -> str:
    """Write a duration that was measured."""
    if seconds < 0.001:
        return f"{seconds * 1e6:.0f} µs"
    return f"{seconds * 1000:.1f} ms" if seconds < 1 else duration(seconds)


def per_second(rate: float | None) -> str:
    """Write a rate with two digits or more; None is not known yet."""
    if rate is None:
        return ""
    return f"{rate:.1f}" if 0 < rate < 10 else f"{rate:.0f}"


def shortened(identifier: str) -> str:
    """Return the beginning of a long identifier: enough to compare, not enough to release by."""
    return identifier if len(identifier) <= SHORT else f"{identifier[:8]}…"


def shown(text: str) -> str:
    """Return a text without control characters, which could change the terminal."""
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape", "surrogatepass").decode()
        for char in text
    )
