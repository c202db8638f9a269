"""A selector that no greenlet library has replaced, for event loops on native threads.

gevent replaces ``selectors.DefaultSelector`` even if it leaves threads native. Its selectors have
watchers at the hub of the thread that registers a file. An event loop is woken from any thread, so
two threads would use one hub: its timers stop, or the process crashes.
"""

from __future__ import annotations

import math
import select
import selectors
from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec, module_from_spec
from types import BuiltinFunctionType, ModuleType
from typing import Any

_READ, _WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE
#: The same in the flags of poll(); these constants are the same on all systems that have it.
_POLLIN, _POLLOUT = 1, 4


def is_select_replaced() -> bool:
    """Whether ``select`` is not native, but lets other greenlets run while it waits."""
    return not isinstance(select.select, BuiltinFunctionType)


def native_selector() -> selectors.BaseSelector | None:
    """Create a native selector if the default one is replaced; None for the default one."""
    if not is_select_replaced():
        return None
    native = _untouched_select()
    return None if native is None or not hasattr(native, "poll") else PollSelector(native.poll())


@cache
def _untouched_select() -> ModuleType | None:
    """A private copy of the module ``select``."""
    spec = find_spec("select")
    if spec is None or spec.loader is None:
        return None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class PollSelector(selectors.BaseSelector):
    """A selector for the few files of a background loop.

    Args:
        poller: what ``select.poll()`` returns.
    """

    def __init__(self, poller: Any) -> None:
        self._poller = poller
        self._keys: dict[int, selectors.SelectorKey] = {}

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        number = self._number(fileobj)
        if number in self._keys:
            raise KeyError(f"{fileobj!r} is already registered")
        return self._set(number, fileobj, events, data)

    def modify(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._set(self.get_key(fileobj).fd, fileobj, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        key = self._keys.pop(self.get_key(fileobj).fd)
        self._poller.unregister(key.fd)
        return key

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        milliseconds = None if timeout is None else math.ceil(max(0.0, timeout) * 1000)
        found = []
        for number, flags in self._poller.poll(milliseconds):
            key = self._keys.get(number)
            if key is not None:
                # An error or a closed connection is reported as both.
                events = (flags & ~_POLLOUT and _READ) | (flags & ~_POLLIN and _WRITE)
                found.append((key, events & key.events))
        return found

    def get_key(self, fileobj: Any) -> selectors.SelectorKey:
        try:
            return self._keys[self._number(fileobj)]
        except KeyError:
            raise KeyError(f"{fileobj!r} is not registered") from None

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return {key.fileobj: key for key in self._keys.values()}

    def close(self) -> None:
        self._keys.clear()

    def _set(self, number: int, fileobj: Any, events: int, data: Any) -> selectors.SelectorKey:
        flags = (events & _READ and _POLLIN) | (events & _WRITE and _POLLOUT)
        key = selectors.SelectorKey(fileobj, number, events, data)
        self._poller.register(number, flags)
        self._keys[number] = key
        return key

    def _number(self, fileobj: Any) -> int:
        """The file descriptor, also of a registered object that was closed."""
        if isinstance(fileobj, int):
            return fileobj
        number: int = fileobj.fileno()
        if number >= 0:
            return number
        return next((key.fd for key in self._keys.values() if key.fileobj is fileobj), number)
