"""The cases of a test in which every value occurs, or every two values occur together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Hashable, Mapping, Sequence
from itertools import combinations

import pytest

#: A test with more cases than these is shortened.
FEW = 8
#: The same in the folders where a case may take seconds.
FEW_LONG = 2

Case = Mapping[str, Hashable]


def covering(cases: Sequence[Case], count: int = 2) -> list[int]:
    """The numbers of cases that have every ``count`` values of different parameters that any has.

    Each is the case with the most that are still missing: not the fewest cases, but few.
    """
    groups = [_groups(case, count) for case in cases]
    missing, chosen = set().union(*groups), []
    while missing:
        best = max(range(len(cases)), key=lambda number: len(groups[number] & missing))
        missing -= groups[best]
        chosen.append(best)
    return chosen


def mark_others(items: Sequence[pytest.Function], long: Collection[str] = ()) -> None:
    """Mark the cases as slow that only repeat pairs of values, of tests with many cases.

    In the ``long`` folders, those that only repeat values.
    """
    by_test = defaultdict(list)
    for item in items:
        if hasattr(item, "callspec"):
            by_test[item.nodeid.partition("[")[0]].append(item)
    for found in by_test.values():
        # The same object is the same value: all cases have those of one list.
        cases = [{name: id(value) for name, value in _values(item).items()} for item in found]
        is_long = found[0].path.parent.name in long
        if len(found) <= (FEW_LONG if is_long else FEW) or len(cases[0]) < (2 if is_long else 3):
            continue
        for number in set(range(len(found))).difference(covering(cases, 1 if is_long else 2)):
            found[number].add_marker(pytest.mark.slow)


def _values(item: pytest.Function) -> Mapping[str, object]:
    values: Mapping[str, object] = item.callspec.params
    return values


def _groups(case: Case, count: int) -> set[tuple[tuple[str, Hashable], ...]]:
    return set(combinations(sorted(case.items(), key=lambda pair: pair[0]), count))
