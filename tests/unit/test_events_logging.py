"""Events in the log: their levels and texts, and the limit of warnings."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from redis_lock_decorators import events
from redis_lock_decorators._rules.rate_limit import MOST_KEYS, RateLimit


def logged(caplog: pytest.LogCaptureFixture, *given: events.LockEvent) -> list[tuple[int, str]]:
    events._warnings = RateLimit(events.WARNING_PERIOD)
    with caplog.at_level(logging.DEBUG, "redis_lock_decorators.events"):
        for event in given:
            events.log_events(event)
    return [(record.levelno, record.getMessage()) for record in caplog.records]


def common(at: float = 0.0, label: str = "order:{id}") -> dict[str, Any]:
    return {
        "lock_name": "order:1",
        "key": "sys:lock:order:1",
        "label": label,
        "acquisition": 1,
        "at": at,
        "time": 0.0,
    }


def test_normal_course_is_logged_for_debugging(caplog: pytest.LogCaptureFixture) -> None:
    found = logged(
        caplog,
        events.Acquiring(**common()),
        events.Acquired(**common(), waited=0.5, by="queue", fence=None),
        events.Renewed(**common(), left=6.0, took=0.01),
        events.Released(**common(), held=2.0, error=""),
        events.Released(**common(), held=2.0, error="TimeoutError"),
        events.HandedOver(**common(), held=2.0),
        events.TimedOut(**common(), waited=10.0),
        events.AcquireFailed(**common(), waited=1.0, error="ConnectionError"),
    )

    assert {level for level, _ in found} == {logging.DEBUG}
    assert [message.removeprefix("lock 'order:1' ") for _, message in found] == [
        "is being acquired",
        "was acquired after 0.5 s (queue)",
        "was renewed in 0.01 s, 6 s before its end",
        "was released after 2 s",
        "was released after 2 s, but the release failed: TimeoutError",
        "was handed over in this process after 2 s",
        "was not free within 10 s",
        "was not acquired: ConnectionError after 1 s",
    ]


def test_losses_and_late_renewals_are_warnings(caplog: pytest.LogCaptureFixture) -> None:
    found = logged(
        caplog,
        events.RenewalLate(**common(), left=2.0, error="TimeoutError: no reply"),
        events.Lost(**common(), held=10.0, why="its key is gone"),
    )

    assert found == [
        (
            logging.WARNING,
            "lock 'order:1' is not renewed yet, 2 s before it expires (TimeoutError: no reply)",
        ),
        (logging.WARNING, "lock 'order:1' was lost after 10 s: its key is gone"),
    ]


def test_warnings_of_one_label_are_limited(caplog: pytest.LogCaptureFixture) -> None:
    losses = [
        events.Lost(**common(at, label), held=1.0, why="gone")
        for at, label in [(0, "a"), (1, "a"), (2, "a"), (3, "b"), (10, "a")]
    ]

    found = [message for _, message in logged(caplog, *losses)]

    assert len(found) == 3
    assert found[-1].endswith("gone (and 2 more such warnings since the last one)")


def test_rate_limit_forgets_old_keys() -> None:
    limit = RateLimit(10)

    for key in range(2 * MOST_KEYS):
        assert limit.left_out(key, 0) == 0

    assert len(limit._allowed) <= MOST_KEYS
