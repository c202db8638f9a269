"""Held claims and their terms, with thread switches at any line."""

from __future__ import annotations

import pytest
from support.simulation import new_claim, shortened
from support.switching import Make, Scene, Scenes, Switcher, name_of

from redis_lock_decorators._flow.claim import Claim
from redis_lock_decorators._flow.held_claims import LEAST, HeldClaims

HELD = Scenes("_flow/held_claims")
CLAIM = Scenes("_flow/term", "_flow/lease_ends")


# Held claims


def held_claim(name: str, since: float = 1000.0) -> Claim:
    claim = new_claim(name, owner="me")
    claim.mark_held(since)
    return claim


def is_held(held: HeldClaims, *claims: Claim) -> None:
    assert dict(held) == {key: claim for claim in claims for key in claim.keys}


@HELD.add
def two_threads_forget_one_claim(switcher: Switcher) -> Scene:
    held, claim = HeldClaims(), held_claim("a")
    held.add(claim, lambda: 1000.0)
    return Scene(lambda: held.forget(claim), lambda: held.forget(claim), lambda: is_held(held))


@HELD.add
def lost_claim_is_forgotten_while_its_key_is_acquired(switcher: Switcher) -> Scene:
    held, lost, next_member = HeldClaims(), held_claim("a", 900.0), held_claim("a")
    held.add(lost, lambda: 1000.0)
    return Scene(
        lambda: held.forget(lost),
        lambda: held.add(next_member, lambda: 1000.0),
        lambda: is_held(held, next_member),
    )


@HELD.add
def expired_claims_are_searched_while_one_is_added(switcher: Switcher) -> Scene:
    held, lost, next_member = HeldClaims(), held_claim("a", 900.0), held_claim("a")
    many = [held_claim(f"many {number}", 900.0) for number in range(LEAST - 2)]
    for claim in (lost, *many):
        held.add(claim, lambda: 1000.0)
    one = held_claim("one")
    return Scene(
        lambda: held.add(one, lambda: 1000.0),
        lambda: held.add(next_member, lambda: 1000.0),
        lambda: all_known(held, one, next_member),
    )


@HELD.add
def two_threads_search_for_expired_claims(switcher: Switcher) -> Scene:
    held, one, other = HeldClaims(), held_claim("one"), held_claim("other")
    many = [held_claim(f"many {number}", 900.0) for number in range(LEAST - 1)]
    for claim in many[::2]:
        held.add(claim, lambda: 1000.0)
    del many[:10]  # only their keys remain
    held._limit = 8

    def check() -> None:
        all_known(held, one, other)
        is_held(held, one, other)

    return Scene(
        lambda: held.add(one, lambda: 1000.0), lambda: held.add(other, lambda: 1000.0), check
    )


@HELD.add
def key_is_looked_up_while_its_claim_is_forgotten(switcher: Switcher) -> Scene:
    held, claim, other = HeldClaims(), held_claim("a"), held_claim("b")
    held.add(claim, lambda: 1000.0)
    held.add(other, lambda: 1000.0)
    found: list[Claim | None] = []

    def look_up() -> None:
        found.extend([held.get(claim.keys[0]), held.get(other.keys[0])])

    def check() -> None:
        assert found[0] in (claim, None)
        assert found[1] is other

    return Scene(look_up, lambda: held.forget(claim), check)


@HELD.add
def next_claim_is_added_while_two_threads_forget(switcher: Switcher) -> Scene:
    held, lost, next_member = HeldClaims(), held_claim("a", 900.0), held_claim("a")
    held.add(lost, lambda: 1000.0)

    def take_over() -> None:
        held.forget(lost)
        held.add(next_member, lambda: 1000.0)

    return Scene(take_over, lambda: held.forget(lost), lambda: is_held(held, next_member))


def all_known(held: HeldClaims, *claims: Claim) -> None:
    assert [held.get(claim.keys[0]) for claim in claims] == list(claims)


# Terms of leases


def assert_deadline(claim: Claim, deadline: float, lasts: float) -> None:
    assert claim.deadline == pytest.approx(deadline, abs=1.1)
    assert claim.deadline <= deadline
    assert claim.duration == lasts


def moved(claim: Claim, known: float, sent: float, seconds: float) -> None:
    """Move the end nearer by a request with the given send time and reply time."""
    claim.confirm_shortened(shortened(claim, sent + 10.0, sent, seconds), known)


@CLAIM.add
def lease_is_extended_while_it_is_renewed(switcher: Switcher) -> Scene:
    claim = held_claim("a")
    return Scene(
        lambda: claim.prolong(1003.0, 10.0),
        lambda: claim.prolong(1003.0, 100.0),
        lambda: assert_deadline(claim, 1103.0, 100.0),
    )


@CLAIM.add
def lease_is_extended_twice_while_it_is_renewed(switcher: Switcher) -> Scene:
    claim = held_claim("a")

    def extend() -> None:
        claim.prolong(1003.0, 30.0)
        claim.prolong(1004.0, 100.0)

    return Scene(
        lambda: claim.prolong(1003.5, 10.0), extend, lambda: assert_deadline(claim, 1104.0, 100.0)
    )


@CLAIM.add
def end_is_moved_nearer_during_a_renewal(switcher: Switcher) -> Scene:
    claim = held_claim("a")
    return Scene(
        lambda: claim.prolong(1003.0, 30.0),
        lambda: moved(claim, 1005.0, 1004.0, 2.0),
        lambda: assert_deadline(claim, 1006.0, 2.0),
    )


@CLAIM.add
def moved_end_is_extended_during_a_renewal(switcher: Switcher) -> Scene:
    claim = held_claim("a")

    def extend() -> None:
        moved(claim, 1005.0, 1004.0, 2.0)
        claim.prolong(1005.5, 50.0)

    return Scene(
        lambda: claim.prolong(1003.0, 30.0), extend, lambda: assert_deadline(claim, 1055.5, 50.0)
    )


@CLAIM.add
def two_threads_move_the_end_nearer(switcher: Switcher) -> Scene:
    claim = held_claim("a")
    return Scene(
        lambda: moved(claim, 1005.0, 1004.0, 2.0),
        lambda: moved(claim, 1005.5, 1004.5, 3.0),
        lambda: assert_deadline(claim, 1006.0, 2.0),
    )


@CLAIM.add
def end_is_moved_nearer_by_one_thread_and_extended_by_another(switcher: Switcher) -> Scene:
    claim = held_claim("a")
    return Scene(
        lambda: moved(claim, 1005.0, 1004.0, 2.0),
        lambda: claim.add_end(1004.5, 50.0),
        lambda: assert_deadline(claim, 1006.0, 2.0),
    )


@CLAIM.add
def end_is_moved_nearer_while_another_move_is_refused(
    switcher: Switcher,
) -> Scene:
    claim = held_claim("a")
    return Scene(
        lambda: moved(claim, 1005.0, 1004.0, 3.0),
        lambda: claim.cancel_shortening(shortened(claim, 1014.0, 1004.0, 2.0)),
        lambda: assert_deadline(claim, 1007.0, 3.0),
    )


ALL = [(scenes, scene) for scenes in (HELD, CLAIM) for scene in scenes]


@pytest.mark.parametrize(("scenes", "scene"), ALL, ids=[name_of(scene) for _, scene in ALL])
def test_claims_are_consistent_with_thread_switches_at_any_line(
    scenes: Scenes, scene: Make
) -> None:
    assert scenes.explore(scene) > 5
