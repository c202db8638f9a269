"""What the package logs, also where nothing may wait for a handler."""

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

    Handlers may wait: for each other, for a file, even for a lock that somebody is to be handed.
    So a thread that looks after the leases and waiters of all others hands its records over.

    Attributes:
        hand_over: has a function called by another thread, in order; False where there is no need.
    """

    def __init__(self) -> None:
        self._logger = logging.getLogger("redis_lock_decorators")
        self.hand_over: Callable[[Callable[[], object]], bool] = _is_not_background

    def debug(self, message: str, *arguments: object) -> None:
        """What only those who look for a fault want to know."""
        self._log(logging.DEBUG, message, arguments)

    def info(self, message: str, *arguments: object) -> None:
        """What went wrong and will be put right."""
        self._log(logging.INFO, message, arguments)

    def warning(self, message: str, *arguments: object) -> None:
        """What somebody should put right."""
        self._log(logging.WARNING, message, arguments)

    def error(self, message: str, *arguments: object, exc_info: BaseException | None) -> None:
        """An error that has no caller."""
        self._log(logging.ERROR, message, arguments, exc_info)

    def exception(self, message: str, *arguments: object) -> None:
        """The same, of the error that is being handled."""
        self._log(logging.ERROR, message, arguments, sys.exc_info()[1])

    def _log(
        self,
        level: int,
        message: str,
        arguments: tuple[Any, ...],
        error: BaseException | None = None,
    ) -> None:
        # Whether the level is enabled is asked there too: that may wait for a lock of logging.
        log = partial(self._logger.log, level, message, *arguments, exc_info=error, stacklevel=3)
        if not self.hand_over(log):
            log()


log = Log()
