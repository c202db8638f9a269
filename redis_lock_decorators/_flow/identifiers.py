"""The values of lock keys: identifiers of holders, and min-hold placeholders."""

from __future__ import annotations

import re
from os import urandom

#: The suffix of identifiers whose holders grant the lock to its queue when they release it.
GRANTS = "~"
#: What follows the identifier in a min-hold placeholder.
REST = ":rest"
#: The suffix of a placeholder with an identifier of ours.
RESTING = GRANTS + REST
#: What precedes the first identifier of the acquisition that got a shared one last, in its record.
GOT_LAST = "by:"
GENERATED = re.compile(f"[0-9a-f]{{32}}{GRANTS}")


def is_resting(holder: str) -> bool:
    """Whether the value of a key is a min-hold placeholder, so that the lock has no holder."""
    return holder.endswith(RESTING)


def released_by(holder: str) -> str:
    """The identifier in the value of a key: the holder's, or the one in a min-hold placeholder."""
    return holder[: 1 - len(RESTING)] if is_resting(holder) else holder


def new_identifier() -> str:
    """128 random bits as text."""
    return urandom(16).hex() + GRANTS


def is_generated(identifier: str) -> bool:
    """Whether it looks like one of ``new_identifier``, which no two acquisitions have."""
    return GENERATED.fullmatch(identifier) is not None
