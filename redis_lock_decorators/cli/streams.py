"""The standard streams: to fail to write is neither a result nor an error of the server."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from redis_lock_decorators.cli import exit_codes
from redis_lock_decorators.cli.output import fail


class OutputError(Exception):
    """The standard output cannot be written.

    Attributes:
        error: the reason.
    """

    def __init__(self, error: OSError) -> None:
        super().__init__(error)
        self.error = error


class _Output:
    """The standard output; it raises OutputError where the stream raises OSError."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    @property
    def buffer(self) -> _Output:
        return type(self)(self._stream.buffer)

    def write(self, data: Any) -> Any:
        with self._checked():
            return self._stream.write(data)

    def flush(self) -> None:
        with self._checked():
            self._stream.flush()

    @contextmanager
    def _checked(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise OutputError(error) from error


class _Messages(_Output):
    """The standard error; what cannot be written there is lost."""

    @contextmanager
    def _checked(self) -> Iterator[None]:
        try:
            yield
        except OSError:
            discard(self._stream)


@contextmanager
def checked_streams() -> Iterator[None]:
    """End with a separate exit code if the standard output cannot be written.

    A closed pipe, as of ``head``, needs no message. Characters that the output's encoding does not
    have are escaped.
    """
    former = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = _checked(sys.stdout, _Output), _checked(sys.stderr, _Messages)
    try:
        try:
            yield
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except OutputError as failure:
        discard(former[0])
        if failure.error.errno == errno.EPIPE:
            sys.exit(exit_codes.BROKEN_PIPE)
        fail(f"the output: {failure.error.strerror}", exit_codes.OUTPUT)
    finally:
        sys.stdout, sys.stderr = former


def discard(stream: Any) -> None:
    """Discard what the stream has buffered, which Python would write at the end."""
    with suppress(OSError, ValueError):  # it is no file
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, stream.fileno())
        os.close(nothing)


def _checked(stream: Any, kind: type[_Output]) -> Any:
    if stream is None:  # the file was closed
        return None
    if getattr(stream, "errors", None) == "strict" and hasattr(stream, "reconfigure"):
        stream.reconfigure(errors="backslashreplace")
    return kind(stream)
