"""The look-up of the holders of keys."""

from support.faults import reply_lost
from support.simulation import SimulatedPort

from redis_lock_decorators._flow.extend import holders
from redis_lock_decorators._io.blocking_port import run


def test_holders_are_found_key_by_key() -> None:
    port = SimulatedPort()
    port.server.put(b"1", "another")

    found = run(holders(port, (b"1", b"2")))

    assert found == ["another", None]


def test_request_for_a_holder_is_repeated_after_a_lost_reply() -> None:
    port = SimulatedPort()
    port.server.put(b"1", "another")
    port.faults = [reply_lost]

    found = run(holders(port, (b"1",)))

    assert found == ["another"]


def test_holder_that_is_not_utf8_is_found() -> None:
    port = SimulatedPort()
    port.server.put(b"1", "\udcff")

    found = run(holders(port, (b"1",)))

    assert found == ["\udcff"]
