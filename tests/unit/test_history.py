"""The checks of histories find each violation and report nothing else."""

from __future__ import annotations

import json

from support.history import (
    Allowed,
    Diary,
    Harm,
    attempts,
    delays,
    failures,
    fences,
    losses,
    overlaps,
    starved,
    trace,
    unnotified,
)

HARMS = {"a": Harm(), "b": Harm(), "dead": Harm(killed=3.0)}


def held(granted, releasing, process="a", **details):
    """An attempt that held the lock from ``granted`` to ``releasing``; lease: ten seconds."""
    details = {"deadline": granted + 10, "lock": "x", "outcome": "ok", **details}
    return {
        "process": process,
        "patience": 60.0,
        "invoked": granted - 0.5,
        "granted": granted,
        "releasing": releasing,
        "ended": releasing + 0.001,
        **details,
    }


def of_a_dead_process(granted, deadline):
    lease = held(granted, granted, "dead", deadline=deadline)
    return {name: lease[name] for name in ("process", "patience", "lock", "granted", "deadline")}


class TestOverlaps:
    def test_consecutive_holders_do_not_overlap(self):
        assert overlaps([held(1, 2), held(2, 3, "b"), held(3, 4)], HARMS) == []

    def test_other_locks_do_not_count(self):
        assert overlaps([held(1, 3), held(2, 4, "b", lock="y")], HARMS) == []

    def test_two_holders_at_the_same_time_are_found(self):
        (found,) = overlaps([held(2, 4, "b"), held(1, 2.25)], HARMS)

        assert found.startswith("two held the lock for 0.250 s")

    def test_overlap_with_a_much_earlier_holder_is_found(self):
        history = [held(1, 9), held(10, 11), held(2, 3, "b"), held(4, 5, "b")]

        assert len(overlaps(history, HARMS)) == 2

    def test_lock_counts_as_held_until_its_deadline_at_most(self):
        assert overlaps([held(1, 9, deadline=2), held(2, 3, "b")], HARMS) == []
        assert len(overlaps([held(1, 9, deadline=2.5), held(2, 3, "b")], HARMS)) == 1

    def test_lock_counts_as_held_until_its_holder_is_notified(self):
        assert overlaps([held(1, 9, notified=2), held(2, 3, "b")], HARMS) == []

    def test_lock_without_a_deadline_counts_as_held_until_its_release(self):
        assert len(overlaps([held(1, 90, deadline=None), held(80, 81, "b")], HARMS)) == 1

    def test_lock_of_a_killed_process_counts_as_held_until_the_kill(self):
        assert overlaps([of_a_dead_process(1, 9), held(3, 4, "b")], HARMS) == []
        assert len(overlaps([of_a_dead_process(1, 9), held(2.5, 4, "b")], HARMS)) == 1

    def test_grant_noticed_after_its_deadline_is_no_overlap(self):
        assert overlaps([held(1, 3), held(2, 4, "b", deadline=1.9)], HARMS) == []


class TestAllowedOverlaps:
    CRASH = Allowed(since=2, until=5, why="a replica had not received it")

    def test_earlier_lease_may_overlap_until_the_bound(self):
        assert overlaps([held(1, 5), held(3, 6, "b")], HARMS, [self.CRASH]) == []

    def test_earlier_lease_must_not_overlap_after_the_bound(self):
        assert len(overlaps([held(1, 5.5), held(3, 6, "b")], HARMS, [self.CRASH])) == 1

    def test_later_lease_must_not_overlap(self):
        assert len(overlaps([held(2.5, 4), held(3, 6, "b")], HARMS, [self.CRASH])) == 1


class TestUnnotified:
    def test_holder_whose_lock_was_acquired_by_another_must_be_notified(self):
        (found,) = unnotified([held(1, 5), held(3, 6, "b")])

        assert found.startswith("a loss was not reported")

    def test_holder_past_its_deadline_must_be_notified(self):
        assert len(unnotified([held(1, 5, deadline=2), held(3, 6, "b")])) == 1

    def test_every_kind_of_notification_counts(self):
        for details in (
            {"notified": 4},
            {"lost": True},
            {"outcome": "lost"},
            {"outcome": "unknown"},
        ):
            assert unnotified([held(1, 5, **details), held(3, 6, "b")]) == []

    def test_holder_that_released_before_needs_no_notification(self):
        assert unnotified([held(1, 3), held(3, 6, "b")]) == []

    def test_killed_holder_needs_no_notification(self):
        assert unnotified([of_a_dead_process(1, 9), held(3, 4, "b")]) == []

    def test_release_while_there_are_two_masters_needs_no_notification(self):
        split = [Allowed(since=4, until=6, why="a failover", masters=4)]

        assert unnotified([held(1, 3.9), held(3, 6, "b")], split) == []
        assert unnotified([held(1, 5), held(3, 3.9, "b")], split) == []
        assert len(unnotified([held(1, 4.1), held(3, 6, "b")], split)) == 1

    def test_one_of_two_holders_at_two_masters_must_be_notified(self):
        split = [Allowed(since=4, until=6, why="a failover", masters=4)]

        assert unnotified([held(1, 5), held(3, 6, "b", notified=4.5)], split) == []
        assert len(unnotified([held(1, 5), held(4.1, 6, "b", notified=4.5)], split)) == 1


class TestCohorts:
    CRASH = Allowed(since=2, until=5, why="an empty server")

    def chain(self, *turns, last="lost"):
        """The members that held one lease, and an external holder that enters after the fault."""
        details = {"strategy": "cohort", "identifier": "one", "deadline": 4}
        *_, end = found = [held(*turn, **details) for turn in turns]
        end["outcome"] = last
        found.append(held(2.05, 2.2, "b", strategy="poll", identifier="other"))
        trace(found)
        return found

    def test_loss_may_be_unknown_for_a_short_time_after_a_hand_off(self):
        history = self.chain((1.9, 2.1), (2.1, 2.14), (2.14, 2.3))

        assert overlaps(history, HARMS, [self.CRASH]) == []
        assert unnotified(history, [self.CRASH]) == []
        assert losses(history, [self.CRASH]) == []

    def test_lost_lease_must_not_be_handed_off_later(self):
        history = self.chain((1.8, 2.06), (2.06, 2.3))

        assert len(overlaps(history, HARMS, [self.CRASH])) == 1
        assert len(unnotified(history, [self.CRASH])) == 2
        assert len(losses(history, [self.CRASH])) == 1

    def test_last_member_must_be_notified(self):
        assert len(unnotified(self.chain((1.9, 2.1), (2.1, 2.3), last="ok"), [self.CRASH])) == 1

    def test_overlap_of_a_cohort_needs_a_fault(self):
        assert len(unnotified(self.chain((1.9, 2.1), (2.1, 2.3)))) == 2

    def test_lease_that_began_after_the_fault_must_not_be_lost(self):
        assert len(losses(self.chain((2.01, 2.1), (2.1, 2.3)), [self.CRASH])) == 1


class TestLosses:
    def test_lost_lease_is_found(self):
        for details in ({"notified": 4}, {"lost": True}, {"outcome": "lost"}):
            assert len(losses([held(1, 5, **details), held(6, 7)])) == 1

    def test_loss_explained_by_a_fault_is_allowed(self):
        fault = Allowed(since=2, until=5, why="an empty server")

        assert losses([held(1, 5, outcome="lost")], [fault]) == []
        assert len(losses([held(2.5, 5, outcome="lost")], [fault])) == 1


class TestFences:
    def test_growing_fences_are_correct(self):
        assert fences([held(1, 2, fence=5), held(3, 4, fence=6)], HARMS) == []

    def test_fence_that_does_not_grow_is_found(self):
        assert len(fences([held(3, 4, fence=5), held(1, 2, fence=5)], HARMS)) == 1


class TestStarved:
    def test_attempt_served_in_time_is_correct(self):
        history = [held(1, 2), held(14.9, 15, invoked=1), held(30, 31, invoked=26)]

        assert starved(history, HARMS, healed=10, healing=5) == []

    def test_too_long_wait_after_the_last_fault_is_found(self):
        assert len(starved([held(15.1, 16, invoked=1)], HARMS, healed=10, healing=5)) == 1

    def test_attempt_without_an_outcome_is_found(self):
        waiting = {"process": "a", "patience": 60.0, "invoked": 1.0}

        assert len(starved([waiting], HARMS, healed=10, healing=5)) == 1

    def test_refusal_after_the_last_fault_is_found(self):
        refused = {"process": "a", "patience": 60.0, "invoked": 8, "outcome": "refused"}

        assert len(starved([{**refused, "ended": 12}], HARMS, healed=10, healing=5)) == 1
        assert starved([{**refused, "ended": 9}], HARMS, healed=10, healing=5) == []

    def test_polling_waiter_may_wait_while_others_hold_the_lock(self):
        waiting = held(17, 18, invoked=1, strategy="poll")
        others = [held(9, 13), held(13.5, 16.8, strategy="poll")]

        assert starved([waiting, *others], HARMS, healed=10, healing=5, idle=1) == []
        (found,) = starved([waiting, others[0]], HARMS, healed=10, healing=5, idle=1)
        assert found.startswith("waited 4.00 s for a free lock")

    def test_wait_for_a_free_lock_is_found(self):
        waiting = held(14, 15, invoked=11, strategy="queue")

        assert starved([waiting], HARMS, healed=10, healing=5, idle=3.5) == []
        assert len(starved([waiting], HARMS, healed=10, healing=5, idle=2.5)) == 1

    def test_lease_reported_as_lost_does_not_justify_waiting(self):
        lost = held(11, 20, notified=12, invoked=11)

        (found,) = starved([lost, held(15, 16)], HARMS, healed=10, healing=5, idle=0.4)

        assert found.startswith("waited 0.50 s for")

    def test_killed_and_impatient_attempts_are_ignored(self):
        history = [
            {"process": "dead", "patience": 60.0, "invoked": 1.0},
            {"process": "a", "patience": 0.5, "invoked": 1.0, "ended": 30, "outcome": "refused"},
        ]

        assert starved(history, HARMS, healed=10, healing=5) == []


REFUSED = {"process": "a", "patience": 1, "invoked": 1, "outcome": "refused"}


class TestDelays:
    def test_late_refusal_is_found(self):
        assert delays([{**REFUSED, "ended": 3.9}], HARMS, lateness=2) == []
        assert len(delays([{**REFUSED, "ended": 4.1}], HARMS, lateness=2)) == 1

    def test_process_that_was_stopped_may_be_late(self):
        stopped = {"a": Harm(stops=[(3, 8)])}

        assert delays([{**REFUSED, "ended": 9}], stopped, lateness=2) == []


class TestFailures:
    def test_bugs_are_found_at_any_time_and_errors_only_after_the_faults(self):
        def ending(outcome, invoked):
            return {"process": "a", "invoked": invoked, "outcome": outcome}

        assert len(failures([ending("wrong", 1)], healed=2)) == 1
        assert len(failures([ending("error", 3), ending("unknown", 3)], healed=2)) == 2
        assert failures([ending("error", 1), ending("unknown", 1)], healed=2) == []
        assert failures([ending("lost", 3), ending("refused", 3)], healed=2) == []


class TestDiary:
    def test_records_of_an_attempt_are_merged(self, tmp_path):
        diary = Diary(tmp_path, "a")
        first, second = diary.begin(lock="x"), diary.begin(lock="y")
        diary.notified(first, "gone")
        diary.end(second, "unknown", "a line was cut")
        diary.end(first, "lost")

        one, two = attempts(tmp_path)

        assert (one["process"], one["lock"], one["outcome"]) == ("a", "x", "lost")
        assert one["invoked"] <= one["notified"] <= one["ended"]
        assert (two["lock"], two["why"], two["outcome"]) == ("y", "a line was cut", "unknown")

    def test_each_event_is_written_immediately_as_one_line(self, tmp_path):
        Diary(tmp_path, "a").begin(lock="x")

        assert json.loads((tmp_path / "a.history").read_text())["lock"] == "x"
