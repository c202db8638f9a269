"""Failures of a batch that say nothing about its requests, which are then sent again alone."""

from __future__ import annotations

from redis_lock_decorators._io import client_errors, error_replies
from redis_lock_decorators._io.transport.batch import Request


def is_of_one(error: Exception, batch: list[Request]) -> bool:
    """Whether an error may be the fault of a single request of a batch, or of none.

    Each request is then sent once more, alone. What a signal handler raises is the fault of none.
    """
    if not client_errors.is_outcome(error):
        return not batch[0].alone
    is_known = client_errors.was_sent(error) and not client_errors.is_unknown(error)
    return is_known and len(batch) > 1


def lacked_text(request: Request, error: Exception) -> bool:
    """Whether a request failed as only another one of its batch had the text of its script.

    The server that ran the other one, if any, was not the one that got this one: behind a proxy.
    """
    is_text = request.command[0] == "EVAL" and not request.alone
    return is_text and error_replies.lacks(error) == "script"
