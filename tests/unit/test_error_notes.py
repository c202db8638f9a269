"""An error of the client gets a note with lock, duration and server, but without password."""

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
from redis_lock_decorators._io.client_nodes import place_of

OPERATIONS = {
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
    ("done", "operation"), [(done, one) for done, many in OPERATIONS.items() for one in many]
)
def test_note_names_the_lock_the_duration_and_the_server(
    done: str, operation: Any, fate: Any
) -> None:
    port, claim = SimulatedPort(), new_claim("report", expire=60)
    if done != "acquired":
        run(acquire(port, claim, 0, 0.005))
    port.usual = fate

    with pytest.raises(Exception, match=r"refused|no reply") as caught:
        run(operation(port, claim))

    port.usual = delivered
    (note,) = caught.value.__notes__
    assert note.startswith(f"lock 'report' could not be {done}: tried for ")
    assert note.endswith(" s at a simulated server")


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("redis://ann:secret@db.example:7000/3", "db.example:7000"),
        ("unix://ann:secret@/run/redis.sock", "/run/redis.sock"),
    ],
)
def test_address_of_a_client_contains_no_password(url: str, address: str) -> None:
    assert place_of(redis.Redis.from_url(url)) == address


def test_address_of_an_unknown_client_is_its_class() -> None:
    assert place_of(object()) == "the server of object"
