"""What a client's user is known to be allowed."""

from __future__ import annotations


class KnownRights:
    """Permissions that a request has shown.

    Attributes:
        has_get: an acquisition that calls GET was answered, and no request was forbidden since.
            Without that right no lock can be released.
    """

    __slots__ = ("has_get",)

    def __init__(self) -> None:
        #: any thread
        self.has_get = False
