"""How values are written for people."""

from __future__ import annotations


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


def shown(text: str) -> str:
    """Return a text without control characters, which could change the terminal."""
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape", "surrogatepass").decode()
        for char in text
    )
