"""The part of PromQL that the dashboard uses, evaluated over two scrapes of a registry.

It is stricter than Prometheus: a selector that matches no series is an error, and so is a label
that a series lacks.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from typing import Any

Labels = frozenset[tuple[str, str]]
Vector = dict[Labels, float]
#: The series of a metric, by its labels.
Scrape = dict[str, Vector]

_TOKEN = re.compile(r'\s*("[^"]*"|\d+(?:\.\d+)?[a-z]*|[a-zA-Z_]\w*|=~|!=|[-+*/(){}\[\],=])')
_OPERATORS: dict[str, Callable[[float, float], float]] = {
    "/": lambda a, b: a / b if b else math.nan,
    "*": lambda a, b: a * b,
    "+": lambda a, b: a + b,
}


def scraped(registry: Any) -> Scrape:
    """What the registry exposes now."""
    found: Scrape = {}
    for family in registry.collect():
        for sample in family.samples:
            found.setdefault(sample.name, {})[frozenset(sample.labels.items())] = sample.value
    return found


def evaluated(query: str, before: Scrape, after: Scrape, seconds: float) -> Vector:
    """The result of a query at the second scrape, ``seconds`` after the first."""
    query = re.sub(r"\$__\w+", "1m", query).replace("$lock", ".*")
    evaluation = _Evaluation(_tokens(query), before, after, seconds)
    result = evaluation.expression()
    assert next(evaluation.tokens, None) is None, f"unread: {query}"
    return result


def _tokens(query: str) -> _Tokens:
    place, found = 0, []
    while query[place:].strip():
        match = _TOKEN.match(query, place)
        assert match is not None, f"unknown syntax: {query[place:]}"
        found.append(match[1])
        place = match.end()
    return _Tokens(found)


class _Tokens(Iterator[str]):
    def __init__(self, tokens: list[str]) -> None:
        self._tokens = tokens

    def __next__(self) -> str:
        if not self._tokens:
            raise StopIteration
        return self._tokens.pop(0)

    def comes(self, *wanted: str) -> bool:
        return bool(self._tokens) and self._tokens[0] in wanted

    def skip(self, wanted: str) -> None:
        found = next(self, None)
        assert found == wanted, f"{found!r} instead of {wanted!r}"


class _Evaluation:
    """One query. The value of ``metric[1m]`` is the increase between the scrapes."""

    def __init__(self, tokens: _Tokens, before: Scrape, after: Scrape, seconds: float) -> None:
        self.tokens = tokens
        self._before, self._after, self._seconds = before, after, seconds

    def expression(self) -> Vector:
        left = self._term()
        while self.tokens.comes(*_OPERATORS):
            operate = _OPERATORS[next(self.tokens)]
            right = self._term()
            left = {labels: operate(left[labels], right[labels]) for labels in left}
        return left

    def _term(self) -> Vector:
        tokens, name = self.tokens, next(self.tokens)
        if name == "(":
            found = self.expression()
            tokens.skip(")")
            return found
        if name == "sum":
            return self._sum()
        if name not in ("rate", "increase", "histogram_quantile"):
            return self._selector(name)
        tokens.skip("(")
        if name == "histogram_quantile":
            share = float(next(tokens))
            tokens.skip(",")
            found = _quantiles(share, self.expression())
        else:
            found = self.expression()
            if name == "rate":
                found = {labels: value / self._seconds for labels, value in found.items()}
        tokens.skip(")")
        return found

    def _sum(self) -> Vector:
        tokens, by = self.tokens, []
        if tokens.comes("by"):
            next(tokens)
            by = self._list("(", ")")
        tokens.skip("(")
        sums: Vector = {}
        for labels, value in self.expression().items():
            known = dict(labels)
            kept = frozenset((name, known[name]) for name in by)
            sums[kept] = sums.get(kept, 0.0) + value
        tokens.skip(")")
        return sums

    def _list(self, first: str, last: str) -> list[str]:
        self.tokens.skip(first)
        found = []
        while not self.tokens.comes(last):
            if (token := next(self.tokens)) != ",":
                found.append(token)
        self.tokens.skip(last)
        return found

    def _selector(self, metric: str) -> Vector:
        series = self._after[metric]
        if self.tokens.comes("{"):
            matchers = self._list("{", "}")
            for name, operator, value in zip(*[iter(matchers)] * 3, strict=True):
                series = {
                    labels: found
                    for labels, found in series.items()
                    if _matches(dict(labels)[name], operator, value[1:-1])
                }
        assert series, f"no series of {metric} matches"
        if not self.tokens.comes("["):
            return series
        self._list("[", "]")
        before = self._before.get(metric, {})
        return {labels: value - before.get(labels, 0.0) for labels, value in series.items()}


def _matches(found: str, operator: str, wanted: str) -> bool:
    if operator == "=~":
        return re.fullmatch(wanted, found) is not None
    return (found == wanted) is (operator == "=")


def _quantiles(share: float, buckets: Vector) -> Vector:
    groups: dict[Labels, list[tuple[float, float]]] = {}
    for labels, count in buckets.items():
        known = dict(labels)
        bound = float(known.pop("le"))
        groups.setdefault(frozenset(known.items()), []).append((bound, count))
    return {labels: _quantile(share, sorted(group)) for labels, group in groups.items()}


def _quantile(share: float, buckets: list[tuple[float, float]]) -> float:
    """As Prometheus: linear within the bucket."""
    wanted, low, below = share * buckets[-1][1], 0.0, 0.0
    if not wanted:
        return math.nan
    for bound, count in buckets:
        if count >= wanted:
            within = (wanted - below) / (count - below)
            return low if bound == math.inf else low + (bound - low) * within
        low, below = bound, count
    raise AssertionError
