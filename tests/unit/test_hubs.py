"""Hubs of greenlets are distinct although the system reuses the ids of threads."""

from __future__ import annotations

import threading

import pytest

from redis_lock_decorators._io.background import hubs

pytest.importorskip("greenlet")


def test_real_threads_have_no_hubs() -> None:
    assert hubs.hub() == 0
    assert not hubs.is_in_hub()


def test_threads_with_the_same_native_id_have_different_hubs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hubs, "are_threads_green", lambda: True)
    monkeypatch.setattr(threading, "get_native_id", lambda: 17)
    found: list[object] = [hubs.hub()]

    for _ in range(3):
        thread = threading.Thread(target=lambda: found.extend([hubs.hub(), hubs.hub()]))
        thread.start()
        thread.join()

    assert len(set(map(id, found))) == 4
    assert found[0] is hubs.hub()
    assert found[1] is found[2]


def test_greenlets_of_a_thread_have_one_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    import greenlet

    monkeypatch.setattr(hubs, "are_threads_green", lambda: True)

    outer = greenlet.greenlet(lambda: greenlet.greenlet(hubs.hub).switch())

    assert outer.switch() is hubs.hub()
