"""Whether the end of a block may wait for the task of an async ``on_lost``.

It waits because the program may end with the block, and the end of an event loop cancels its tasks.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from redis_lock_decorators._io.background.closing import is_being_closed
from redis_lock_decorators._io.background.supervised import background_tasks


def can_wait_for(task: asyncio.Future[Any]) -> bool:
    """Whether code that ends a block, and perhaps handles an exception, may wait for a task."""
    error = sys.exc_info()[1]
    if isinstance(error, (KeyboardInterrupt, SystemExit)) or is_being_closed():
        return False
    is_here = not task.done() and task.get_loop() is asyncio.get_running_loop()
    return is_here and task is not background_tasks().current()
