"""The checks of histories find what was planted in them, and nothing else."""

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
    untold,
)

HARMS = {"a": Harm(), "b": Harm(), "dead": Harm(killed=3.0)}


def held(granted, releasing, process="a", **client_state):
    """An attempt that was inside from one moment to another and believed in it for ten seconds."""
    client_state = {"deadline": granted + 10, "lock": "x", "outcome": "ok", **client_state}
    return {
        "process": process,
        "patience": 60.0,
        "invoked": granted - 0.5,
        "granted": granted,
        "releasing": releasing,
        "ended": releasing + 0.001,
        **client_state,
    }


def of_a_dead_process(granted, deadline):
    lease = held(granted, granted, "dead", deadline=deadline)
    return {name: lease[name] for name in ("process", "patience", "lock", "granted", "deadline")}


class TestOverlaps:
    def test_turns_are_none(self):
        assert overlaps([held(1, 2), held(2, 3, "b"), held(3, 4)], HARMS) == []

    def test_other_locks_do_not_count(self):
        assert overlaps([held(1, 3), held(2, 4, "b", lock="y")], HARMS) == []

    def test_two_inside_at_once_are_found(self):
        (found,) = overlaps([held(2, 4, "b"), held(1, 2.25)], HARMS)

        assert found.startswith("two were inside for 0.250 s")

    def test_an_overlap_with_one_that_entered_long_before_is_found(self):
        history = [held(1, 9), held(10, 11), held(2, 3, "b"), held(4, 5, "b")]

        assert len(overlaps(history, HARMS)) == 2

    def test_a_holder_believes_until_its_deadline_at_most(self):
        assert overlaps([held(1, 9, deadline=2), held(2, 3, "b")], HARMS) == []
        assert len(overlaps([held(1, 9, deadline=2.5), held(2, 3, "b")], HARMS)) == 1

    def test_a_holder_believes_until_it_is_told(self):
        assert overlaps([held(1, 9, told=2), held(2, 3, "b")], HARMS) == []

    def test_a_holder_without_a_deadline_believes_until_it_leaves(self):
        assert len(overlaps([held(1, 90, deadline=None), held(80, 81, "b")], HARMS)) == 1

    def test_the_dead_believe_in_nothing(self):
        assert overlaps([of_a_dead_process(1, 9), held(3, 4, "b")], HARMS) == []
        assert len(overlaps([of_a_dead_process(1, 9), held(2.5, 4, "b")], HARMS)) == 1

    def test_who_comes_to_itself_after_its_lease_believes_in_nothing(self):
        assert overlaps([held(1, 3), held(2, 4, "b", deadline=1.9)], HARMS) == []


class TestAllowedOverlaps:
    CRASH = Allowed(since=2, until=5, why="a replica had not received it")

    def test_a_lease_of_before_may_overlap_until_the_bound(self):
        assert overlaps([held(1, 5), held(3, 6, "b")], HARMS, [self.CRASH]) == []

    def test_not_for_longer(self):
        assert len(overlaps([held(1, 5.5), held(3, 6, "b")], HARMS, [self.CRASH])) == 1

    def test_not_a_lease_that_was_entered_later(self):
        assert len(overlaps([held(2.5, 4), held(3, 6, "b")], HARMS, [self.CRASH])) == 1


class TestUntold:
    def test_a_holder_whose_lock_another_entered_must_be_told(self):
        (found,) = untold([held(1, 5), held(3, 6, "b")])

        assert found.startswith("a loss was not told")

    def test_deadlines_that_are_over_must_be_told_too(self):
        assert len(untold([held(1, 5, deadline=2), held(3, 6, "b")])) == 1

    def test_any_way_of_telling_will_do(self):
        for client_state in (
            {"told": 4},
            {"lost": True},
            {"outcome": "lost"},
            {"outcome": "unknown"},
        ):
            assert untold([held(1, 5, **client_state), held(3, 6, "b")]) == []

    def test_who_left_before_lost_nothing(self):
        assert untold([held(1, 3), held(3, 6, "b")]) == []

    def test_the_dead_are_told_nothing(self):
        assert untold([of_a_dead_process(1, 9), held(3, 4, "b")]) == []

    def test_who_leaves_while_there_are_two_masters_is_told_nothing(self):
        split = [Allowed(since=4, until=6, why="a failover", masters=4)]

        assert untold([held(1, 3.9), held(3, 6, "b")], split) == []
        assert untold([held(1, 5), held(3, 3.9, "b")], split) == []
        assert len(untold([held(1, 4.1), held(3, 6, "b")], split)) == 1

    def test_of_holders_at_two_masters_one_is_told(self):
        split = [Allowed(since=4, until=6, why="a failover", masters=4)]

        assert untold([held(1, 5), held(3, 6, "b", told=4.5)], split) == []
        assert len(untold([held(1, 5), held(4.1, 6, "b", told=4.5)], split)) == 1


class TestCohorts:
    CRASH = Allowed(since=2, until=5, why="an empty server")

    def chain(self, *turns, last="lost"):
        """Who was passed one lease, and a stranger who enters after the fault."""
        client_state = {"way": "cohort", "identifier": "one", "deadline": 4}
        *_, end = found = [held(*turn, **client_state) for turn in turns]
        end["outcome"] = last
        found.append(held(2.05, 2.2, "b", way="poll", identifier="other"))
        trace(found)
        return found

    def test_who_passes_on_what_was_lost_is_not_told_for_a_moment(self):
        history = self.chain((1.9, 2.1), (2.1, 2.14), (2.14, 2.3))

        assert overlaps(history, HARMS, [self.CRASH]) == []
        assert untold(history, [self.CRASH]) == []
        assert losses(history, [self.CRASH]) == []

    def test_nothing_is_passed_on_later(self):
        history = self.chain((1.8, 2.06), (2.06, 2.3))

        assert len(overlaps(history, HARMS, [self.CRASH])) == 1
        assert len(untold(history, [self.CRASH])) == 2
        assert len(losses(history, [self.CRASH])) == 1

    def test_the_last_is_told(self):
        assert len(untold(self.chain((1.9, 2.1), (2.1, 2.3), last="ok"), [self.CRASH])) == 1

    def test_a_cohort_that_lost_nothing_is_told_nothing(self):
        assert len(untold(self.chain((1.9, 2.1), (2.1, 2.3)))) == 2

    def test_a_lease_of_after_the_fault_is_not_lost(self):
        assert len(losses(self.chain((2.01, 2.1), (2.1, 2.3)), [self.CRASH])) == 1


class TestLosses:
    def test_a_lost_lease_is_found(self):
        for client_state in ({"told": 4}, {"lost": True}, {"outcome": "lost"}):
            assert len(losses([held(1, 5, **client_state), held(6, 7)])) == 1

    def test_one_that_a_fault_explains_is_allowed(self):
        fault = Allowed(since=2, until=5, why="an empty server")

        assert losses([held(1, 5, outcome="lost")], [fault]) == []
        assert len(losses([held(2.5, 5, outcome="lost")], [fault])) == 1


class TestFences:
    def test_numbers_that_grow_are_well(self):
        assert fences([held(1, 2, fence=5), held(3, 4, fence=6)], HARMS) == []

    def test_a_number_that_does_not_grow_is_found(self):
        assert len(fences([held(3, 4, fence=5), held(1, 2, fence=5)], HARMS)) == 1


class TestStarved:
    def test_who_was_served_in_time_is_well(self):
        history = [held(1, 2), held(14.9, 15, invoked=1), held(30, 31, invoked=26)]

        assert starved(history, HARMS, healed=10, healing=5) == []

    def test_who_waited_for_longer_after_the_last_fault_is_found(self):
        assert len(starved([held(15.1, 16, invoked=1)], HARMS, healed=10, healing=5)) == 1

    def test_who_never_had_an_answer_is_found(self):
        waiting = {"process": "a", "patience": 60.0, "invoked": 1.0}

        assert len(starved([waiting], HARMS, healed=10, healing=5)) == 1

    def test_who_was_refused_after_the_last_fault_is_found(self):
        refused = {"process": "a", "patience": 60.0, "invoked": 8, "outcome": "refused"}

        assert len(starved([{**refused, "ended": 12}], HARMS, healed=10, healing=5)) == 1
        assert starved([{**refused, "ended": 9}], HARMS, healed=10, healing=5) == []

    def test_who_polls_may_wait_while_others_are_inside(self):
        waiting = held(17, 18, invoked=1, way="poll")
        others = [held(9, 13), held(13.5, 16.8, way="poll")]

        assert starved([waiting, *others], HARMS, healed=10, healing=5, idle=1) == []
        (found,) = starved([waiting, others[0]], HARMS, healed=10, healing=5, idle=1)
        assert found.startswith("waited 4.00 s for what nobody held")

    def test_who_waits_for_what_nobody_holds_is_found(self):
        waiting = held(14, 15, invoked=11, way="queue")

        assert starved([waiting], HARMS, healed=10, healing=5, idle=3.5) == []
        assert len(starved([waiting], HARMS, healed=10, healing=5, idle=2.5)) == 1

    def test_a_lease_that_nobody_believes_in_keeps_nobody_waiting(self):
        lost = held(11, 20, told=12, invoked=11)

        (found,) = starved([lost, held(15, 16)], HARMS, healed=10, healing=5, idle=0.4)

        assert found.startswith("waited 0.50 s for")

    def test_the_dead_and_the_impatient_wait_for_nothing(self):
        history = [
            {"process": "dead", "patience": 60.0, "invoked": 1.0},
            {"process": "a", "patience": 0.5, "invoked": 1.0, "ended": 30, "outcome": "refused"},
        ]

        assert starved(history, HARMS, healed=10, healing=5) == []


REFUSED = {"process": "a", "patience": 1, "invoked": 1, "outcome": "refused"}


class TestDelays:
    def test_a_refusal_that_comes_late_is_found(self):
        assert delays([{**REFUSED, "ended": 3.9}], HARMS, lateness=2) == []
        assert len(delays([{**REFUSED, "ended": 4.1}], HARMS, lateness=2)) == 1

    def test_a_process_that_was_stopped_may_be_late(self):
        stopped = {"a": Harm(stops=[(3, 8)])}

        assert delays([{**REFUSED, "ended": 9}], stopped, lateness=2) == []


class TestFailures:
    def test_bugs_are_found_at_any_time_and_errors_after_the_faults(self):
        def ending(outcome, invoked):
            return {"process": "a", "invoked": invoked, "outcome": outcome}

        assert len(failures([ending("wrong", 1)], healed=2)) == 1
        assert len(failures([ending("error", 3), ending("unknown", 3)], healed=2)) == 2
        assert failures([ending("error", 1), ending("unknown", 1)], healed=2) == []
        assert failures([ending("lost", 3), ending("refused", 3)], healed=2) == []


class TestDiary:
    def test_what_was_noted_of_an_attempt_is_put_together(self, tmp_path):
        diary = Diary(tmp_path, "a")
        first, second = diary.begin(lock="x"), diary.begin(lock="y")
        diary.told(first, "gone")
        diary.end(second, "unknown", "a line was cut")
        diary.end(first, "lost")

        one, two = attempts(tmp_path)

        assert (one["process"], one["lock"], one["outcome"]) == ("a", "x", "lost")
        assert one["invoked"] <= one["told"] <= one["ended"]
        assert (two["lock"], two["why"], two["outcome"]) == ("y", "a line was cut", "unknown")

    def test_each_event_is_a_line_of_its_own_at_once(self, tmp_path):
        Diary(tmp_path, "a").begin(lock="x")

        assert json.loads((tmp_path / "a.history").read_text())["lock"] == "x"
