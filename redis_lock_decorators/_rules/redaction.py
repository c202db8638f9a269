"""The texts of other code's errors, for log records and messages: without passwords.

Some contain a client with all its parameters, as redis-py's error that Sentinel knows no master.
"""

from __future__ import annotations

import re

#: The parameters of a connection, as a pool or connection shows them.
_PARAMETERS = re.compile(r"(Connection\().*?(\)>(?:\)>|(?=[\s.,:;'\"]|$)))", re.DOTALL)
#: The password in a URL: up to the last "@", as one in a password is not always quoted.
_IN_URL = re.compile(r"(\w://[^\s:/@]*:)\S*@")
#: A parameter whose name says that its value is secret: quoted, or up to a space.
_NAMED = re.compile(
    r"""((?:password|passwd|passphrase|secret)\w*['"]?\s*[=:]\s*)
    (?:b?(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")(?=[\s,.;:)\]}&'"]|$)
    |[^\s&]+)""",
    re.IGNORECASE | re.VERBOSE,
)


def safe_text(error: object) -> str:
    """The text of an error, without passwords."""
    return without_passwords(str(error))


def described(error: BaseException) -> str:
    """The class of an error and its text, without passwords."""
    return f"{type(error).__name__}: {safe_text(error)}"


def without_passwords(text: str) -> str:
    """A text with an ellipsis for each password, and for all parameters of a connection."""
    text = _PARAMETERS.sub(r"\1…\2", text)
    text = _IN_URL.sub(r"\1…@", text)
    return _NAMED.sub(r"\1…", text)
