"""A client's own error tells which lock it ended, for how long who was asked, and no password."""

from typing import Any

import pytest
import redis
from support.faults import delivered, refused, swallowed
from support.simulation import SimulatedPort, new_claim

from redis_lock_decorators._flow import functions
from redis_lock_decorators._flow.acquire import acquire
from redis_lock_decorators._flow.extend import extend
from redis_lock_decorators._flow.release import release
from redis_lock_decorators._io.blocking_port import run
from redis_lock_decorators._io.client_state import place_of

WORKS = {
    "acquired": [
        lambda port, claim: acquire(port, claim, 60, 0.005),
        lambda port, claim: functions.acquire_lock(port, claim, 60, 0.005),
    ],
    "released": [
        lambda port, claim: release(port, claim, "script"),
        lambda port, claim: functions.release_lock(port, claim, None),
    ],
    "extended": [
        lambda port, claim: extend(port, claim, 30),
        lambda port, claim: functions.extend_lock(port, claim),
    ],
}


@pytest.mark.parametrize("fate", [refused, swallowed])
@pytest.mark.parametrize(
    ("what", "work"), [(what, work) for what, works in WORKS.items() for work in works]
)
def test_error_of_the_client_tells_the_lock_the_time_and_the_place(
    what: str, work: Any, fate: Any
) -> None:
    port, claim = SimulatedPort(), new_claim("report", expire=60)
    if what != "acquired":
        run(acquire(port, claim, 0, 0.005))
    port.usual = fate

    with pytest.raises(Exception, match=r"refused|no reply") as caught:
        run(work(port, claim))

    port.usual = delivered
    (told,) = caught.value.__notes__
    assert told.startswith(f"lock 'report' could not be {what}: tried for ")
    assert told.endswith(" s at a simulated server")


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("redis://ann:secret@db.example:7000/3", "db.example:7000"),
        ("unix://ann:secret@/run/redis.sock", "/run/redis.sock"),
    ],
)
def test_place_of_a_client_tells_no_password(url: str, place: str) -> None:
    assert place_of(redis.Redis.from_url(url)) == place


def test_place_of_a_client_of_another_kind_is_its_class() -> None:
    assert place_of(object()) == "the server of object"
