"""The response of a web framework if the lock of a request is busy."""

from __future__ import annotations

import math

from redis_lock_decorators.errors import LockTimeoutError

#: "Locked", of RFC 4918; the alternative is 409, "Conflict".
LOCKED = 423
#: It does not name the lock or its holder, which may be internal.
TEXT = "Another request is working on this. Try again later."
#: The longest Retry-After in seconds: a key without a time to live is never free.
LONGEST = 60


def retry_after(error: LockTimeoutError) -> str:
    """Return the value of Retry-After: when the lease expires unless it is renewed, in seconds."""
    free_in = 1.0 if error.free_in is None else error.free_in
    return str(math.ceil(min(max(free_in, 1.0), LONGEST)))
