"""The cases of a test with many parameters in which every two values occur together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from itertools import combinations

import pytest

#: A test with more cases than these is shortened.
FEW = 8

Case = Mapping[str, Hashable]


def covering(cases: Sequence[Case]) -> list[int]:
    """The numbers of cases that have every pair of values of two parameters that any case has.

    Each is the case with the most pairs that are still missing: not the fewest cases, but few.
    """
    pairs = [_pairs(case) for case in cases]
    missing, chosen = set().union(*pairs), []
    while missing:
        best = max(range(len(cases)), key=lambda number: len(pairs[number] & missing))
        missing -= pairs[best]
        chosen.append(best)
    return chosen


def mark_others(items: Sequence[pytest.Function]) -> None:
    """Mark the cases as slow that only repeat pairs of values, of tests with many cases."""
    by_test = defaultdict(list)
    for item in items:
        if hasattr(item, "callspec"):
            by_test[item.nodeid.partition("[")[0]].append(item)
    for found in by_test.values():
        # The same object is the same value: all cases have those of one list.
        cases = [{name: id(value) for name, value in _values(item).items()} for item in found]
        if len(found) <= FEW or len(cases[0]) < 3:
            continue
        for number in set(range(len(found))).difference(covering(cases)):
            found[number].add_marker(pytest.mark.slow)


def _values(item: pytest.Function) -> Mapping[str, object]:
    values: Mapping[str, object] = item.callspec.params
    return values


def _pairs(case: Case) -> set[tuple[tuple[str, Hashable], ...]]:
    return set(combinations(sorted(case.items(), key=lambda pair: pair[0]), 2))
