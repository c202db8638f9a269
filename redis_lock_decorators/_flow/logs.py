"""The package's logger, which never makes a background thread wait for a handler."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from functools import partial
from typing import Any


def _is_not_background(_: Callable[[], object]) -> bool:
    return False


class Log:
    """The package's logger.

    Handlers may block: on each other, on a file, even on a lock that is about to be granted. So the
    thread that serves the leases and waiters of all threads leaves its records to another one.

    Attributes:
        hand_over: calls a function on another thread, in order; False if this thread may block.
    """

    def __init__(self) -> None:
        self._logger = logging.getLogger("redis_lock_decorators")
        self.hand_over: Callable[[Callable[[], object]], bool] = _is_not_background

    def debug(self, message: str, *arguments: object) -> None:
        """Log a detail for debugging."""
        self._log(logging.DEBUG, message, arguments)

    def info(self, message: str, *arguments: object) -> None:
        """Log a problem that is solved automatically."""
        self._log(logging.INFO, message, arguments)

    def warning(self, message: str, *arguments: object) -> None:
        """Log a problem that needs an administrator or a programmer."""
        self._log(logging.WARNING, message, arguments)

    def error(self, message: str, *arguments: object, exc_info: BaseException | None) -> None:
        """Log an exception that has no caller."""
        self._log(logging.ERROR, message, arguments, exc_info)

    def exception(self, message: str, *arguments: object) -> None:
        """Log the exception that is being handled."""
        self._log(logging.ERROR, message, arguments, sys.exc_info()[1])

    def _log(
        self,
        level: int,
        message: str,
        arguments: tuple[Any, ...],
        error: BaseException | None = None,
    ) -> None:
        # ``isEnabledFor`` is called there too: it may wait for a lock of ``logging``.
        log = partial(self._logger.log, level, message, *arguments, exc_info=error, stacklevel=3)
        if not self.hand_over(log):
            log()


log = Log()
