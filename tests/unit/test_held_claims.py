"""The claims held through a client: found while they live, forgotten even without a release."""

import gc
import weakref

from support.simulation import SimulatedPort, acquired, new_claim

from redis_lock_decorators._flow.acquire import acquire
from redis_lock_decorators._flow.claim import Claim
from redis_lock_decorators._flow.held_claims import LEAST, HeldClaims
from redis_lock_decorators._flow.release import release
from redis_lock_decorators._io.blocking_port import run


class Owner:
    """Stands for a task that owns a claim."""


def acquire_briefly(port: SimulatedPort, number: int, owner: object) -> Claim:
    claim = new_claim(f"lock {number}", expire=0.05, owner=owner)
    assert run(acquire(port, claim, 0, 0.005)) is None
    return claim


def test_claims_left_to_expire_are_forgotten_in_time() -> None:
    port = SimulatedPort()

    kept = [acquire_briefly(port, number, owner=None) for number in range(5000)]

    living = sum(claim.is_live(port.now()) for claim in kept)
    assert living < 100
    assert len(port.held) <= 2 * living + LEAST


def test_abandoned_claims_of_a_long_lease_are_forgotten_in_time() -> None:
    port = SimulatedPort()

    for number in range(5000):
        acquired(port, f"lock {number}", expire=86_400)
    gc.collect()

    assert len(port.held) <= LEAST
    assert dict(port.held) == {}


def test_unreferenced_claim_and_its_owner_are_not_kept_alive() -> None:
    port, owner = SimulatedPort(), Owner()
    claim = acquire_briefly(port, 1, owner)
    ended = [weakref.ref(claim), weakref.ref(owner)]

    del claim, owner
    gc.collect()

    assert [one() for one in ended] == [None, None]


def test_claim_of_a_key_is_found_while_it_lives() -> None:
    port = SimulatedPort()
    claim = acquired(port, "lock", expire=3600)

    assert port.held.find(claim.keys[0]) is claim
    assert port.held.find(b"another") is None


def test_any_number_of_living_claims_is_kept() -> None:
    port = SimulatedPort()

    living = [acquired(port, f"lock {number}", expire=3600) for number in range(1000)]

    assert dict(port.held) == {claim.keys[0]: claim for claim in living}


def test_searches_are_rarer_with_more_living_claims() -> None:
    searches = 0

    class Counting(HeldClaims):
        def _search(self, now: float) -> None:
            nonlocal searches
            searches += 1
            super()._search(now)

    port = SimulatedPort()
    port.held = Counting()
    living = [acquired(port, f"lock {number}", expire=3600) for number in range(4000)]

    for _ in range(1000):
        run(release(port, acquired(port, "one more"), "script"))

    assert len(living) == 4000
    assert searches <= 7


def test_forgetting_a_lost_claim_keeps_the_next_one() -> None:
    port = SimulatedPort()
    lost = acquired(port, "a", expire=1)
    port.clock.advance(2)
    next_claim = acquired(port, "a")

    port.held.forget(lost)
    port.held.forget(lost)

    assert port.held == {next_claim.keys[0]: next_claim}


def test_any_of_several_keys_is_known() -> None:
    held, claim = HeldClaims(), new_claim("a")
    held.add(claim, lambda: 0.0)

    assert held.has_any((b"another", *claim.keys))
    assert not held.has_any((b"another",))
