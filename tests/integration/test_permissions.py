"""The published list of permissions is sufficient, and each item on it is needed."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from support.leftovers import TIDY_FRONTS
from support.limited import PLACES, Place, started
from support.permitted_uses import CLUSTER, PREFIX, QUEUE, WORKS, skip_unsupported, uses_of, wait

from redis_lock_decorators._rules import permissions

FRONTS = TIDY_FRONTS
SECURITY = pathlib.Path(__file__).parents[2] / "SECURITY.rst"


@pytest.fixture(scope="module", params=PLACES)
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    with started(request.param) as found:
        yield found


async def do_all(front: Any, place: Place, use: str, name: str) -> list[Any]:
    """Run all works of a use concurrently and return their results."""
    client = place.client(front)
    works = [
        partial(work, front, client, f"{name}:{number}")
        for number, work in enumerate(WORKS[use][1])
    ]
    with place.half_moved(f"{PREFIX}{name}:0" if use == CLUSTER else None):
        return await front.elsewhere(*works)


@pytest.mark.parametrize("use", WORKS)
async def test_listed_permissions_are_sufficient_and_used(place, front, use, name, caplog):
    skip_unsupported(place, use, front)
    uses = uses_of(place, use)
    with place.user(*permissions.rules(PREFIX, uses)):
        results = await do_all(front, place, use, name)

        assert results == [None] * len(results)
        assert place.refused() == []
        used = place.used()

    assert [record.getMessage() for record in caplog.records] == []
    listed = {command.lower() for command in permissions.RIGHTS.get(use, ())} & place.known
    assert listed - used == set()


def droppable() -> list[tuple[str, str]]:
    """Every item of the list, with each use that needs it."""
    return [(use, command) for use in permissions.RIGHTS for command in permissions.RIGHTS[use]]


@pytest.mark.slow
@pytest.mark.parametrize(("use", "command"), droppable())
async def test_without_a_listed_permission_something_is_refused(place, front, use, command, name):
    skip_unsupported(place, use, front)
    if command.lower() not in place.known:
        pytest.skip("the server does not know this command")
    missing = f"+{command.lower()}"
    rules = [rule for rule in permissions.rules(PREFIX, uses_of(place, use)) if rule != missing]
    with place.user(*rules):
        try:
            results = await do_all(front, place, use, name)
        except Exception as error:  # the client itself cannot connect
            results = [error]
        refused = place.refused()

    assert refused or any(isinstance(result, Exception) for result in results)


@pytest.mark.parametrize("missing", ["~", "&"])
async def test_without_the_key_or_channel_pattern_something_is_refused(place, front, missing, name):
    rules = permissions.rules(PREFIX, uses_of(place, QUEUE))
    with place.user(*[rule for rule in rules if not rule.startswith(missing)]):
        await do_all(front, place, QUEUE, name)

        assert place.refused()


@pytest.mark.parametrize("prefix", [PREFIX, "{x}:", "a{b:", "*[x]:", ""])
async def test_one_pattern_suffices_for_every_prefix_and_name(place, front, prefix, name):
    names = [f"{name}{odd}" for odd in ("", "}", "{", "{}", "{7}", "}{", "{{7}}", "~:", "é")]
    allowed = permissions.rules(prefix, uses_of(place, QUEUE))
    with place.user(*allowed):
        client = place.client(front)
        works = [partial(wait(prefix=prefix), front, client, one) for one in names]
        assert await front.elsewhere(*works) == [None] * len(works)

        assert place.refused() == []
    assert place.left(f"*{name}*") == len(names)  # notes of releases


def test_documented_permissions_are_those_of_the_code():
    listed = re.findall(r"(?m)^  \* - (.+)\n    - (.+)$", SECURITY.read_text())

    shown = {
        use.replace("``", ""): tuple(re.findall(r"``([A-Z|]+)``", row)) for use, row in listed[1:]
    }
    assert shown == permissions.RIGHTS
