"""Tests with many cases are run with every pair of values, or with all."""

from __future__ import annotations

from itertools import combinations, product

from support.pairwise import covering


def test_every_pair_of_values_is_covered_by_fewer_cases() -> None:
    values = {"one": "abc", "two": "defg", "three": "hij", "four": "kl"}
    cases = [dict(zip(values, case, strict=True)) for case in product(*values.values())]

    chosen = [cases[number] for number in covering(cases)]

    for first, second in combinations(values, 2):
        found = {(case[first], case[second]) for case in chosen}
        assert found == set(product(values[first], values[second]))
    assert len(chosen) < len(cases) / 4


def test_every_value_is_covered_by_as_many_cases_as_the_longest_list_has() -> None:
    cases = [{"one": one, "two": two} for one, two in product("abc", "defg")]

    chosen = [cases[number] for number in covering(cases, 1)]

    assert {case["one"] for case in chosen} == set("abc")
    assert {case["two"] for case in chosen} == set("defg")
    assert len(chosen) == 4


def test_pairs_that_no_case_has_are_not_asked_for() -> None:
    cases = [{"a": 1, "b": 1, "c": 1}, {"a": 2, "b": 2, "c": 2}]

    assert sorted(covering(cases)) == [0, 1]
