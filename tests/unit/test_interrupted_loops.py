"""The event loop of a worker whose constructor a signal handler interrupts is silent."""

from __future__ import annotations

import gc
import socket
import sys
from typing import Any

import pytest
from support.interruptions import Interrupted

from redis_lock_decorators._io.background.loop_thread import WorkerLoop


def test_loop_without_sockets_is_deleted_silently(monkeypatch: pytest.MonkeyPatch) -> None:
    reported: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", reported.append)

    def interrupted() -> None:
        raise Interrupted

    with monkeypatch.context() as patch:
        patch.setattr(socket, "socketpair", interrupted)
        with pytest.raises(Interrupted):
            WorkerLoop()
    gc.collect()

    assert reported == []


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # its sockets are closed with it
def test_loop_with_sockets_is_deleted_silently(monkeypatch: pytest.MonkeyPatch) -> None:
    reported: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", reported.append)
    add_reader = WorkerLoop._add_reader  # type: ignore[attr-defined]

    def interrupted(loop: Any, *arguments: Any) -> None:
        add_reader(loop, *arguments)
        raise Interrupted

    with monkeypatch.context() as patch:
        patch.setattr(WorkerLoop, "_add_reader", interrupted)
        with pytest.raises(Interrupted):
            WorkerLoop()
    gc.collect()

    assert reported == []
