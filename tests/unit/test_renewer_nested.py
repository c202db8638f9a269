"""``on_lost`` may run the event loop, as with nest_asyncio: other leases are not affected."""

from __future__ import annotations

from support.renewers import SOON, new_lease_loop
from support.simulated_loop import HeldLease


class NestingLease(HeldLease):
    """A lease whose holder runs the event loop for seconds while it is notified."""

    seconds = 5.0

    def notify(self) -> None:
        super().notify()
        if len(self.notifications) == 1:  # as ``OnLostCall`` does, which calls once
            self.port.clock.advance(self.seconds)


def test_others_are_renewed_while_the_holder_of_an_expired_lease_is_notified() -> None:
    _, port = new_lease_loop()
    ending = [NestingLease(port, f"e{i}", expire=2, auto_renew=False) for i in range(4)]
    renewed = [HeldLease(port, f"r{i}", expire=2) for i in range(4)]

    port.clock.advance(60)

    for lease in ending:
        assert lease.notifications
        assert {why for _, why in lease.notifications} == {lease.claim.lost_reason}
        assert lease.notifications[0][0] <= lease.claim.deadline + SOON
    assert all(lease.is_live() and not lease.notifications for lease in renewed)


def test_others_of_a_batch_are_renewed_while_a_holder_is_notified() -> None:
    _, port = new_lease_loop()
    port.latency = 0.001
    lost = [NestingLease(port, f"l{i}", expire=2) for i in range(2)]
    renewed = [HeldLease(port, f"r{i}", expire=2) for i in range(4)]
    for lease in lost:
        port.server.drop(lease.key)

    port.clock.advance(60)

    assert all(lease.notifications[0][0] < lease.claim.deadline for lease in lost)
    assert all(lease.is_live() and not lease.notifications for lease in renewed)
