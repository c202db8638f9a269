"""Attributes of exceptions, also of those that refuse to be changed."""

from __future__ import annotations

from typing import TypeVar

E = TypeVar("E", bound=BaseException)

#: The attribute of a cancellation that has an earlier one, which came to the same code.
ALSO = "also_cancelled_by"


def marked(error: E, name: str, value: object = True) -> E:
    """Set an attribute of an exception, and return it.

    The class of a program's exception may refuse that, as a frozen dataclass does; the error of the
    refusal would replace the exception.
    """
    BaseException.__setattr__(error, name, value)
    return error
