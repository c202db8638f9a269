"""Files use the words of the field, not words of our own for the same."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PLACES = ("redis_lock_decorators", "tests", "benchmarks", "examples", "docs", "README.rst")
FILES = sorted(
    found.relative_to(ROOT).as_posix()
    for place in PLACES
    for found in [ROOT / place, *(ROOT / place).rglob("*")]
    if found.suffix in (".py", ".lua", ".rst") and found != Path(__file__)
)
#: Words that once had a meaning of their own here, and what is said instead.
INSTEAD = {
    r"let(s|ting)? ((it|them|the lock|its lock) )?go\b": "release",
    r"(tells?|telling|told) (it |them |her |him )?(lost|who|whom|so)\b": "notify, report",
    r"couriers?|keepers?|lookouts?|pok(e|es|ed)\b": "batcher, renewer, recheck",
    r"(?<!round )(?<!round-)trips?\b": "exchange, round trip",
    r"bells?\b|lanes?\b|carriers?\b": "event loop, private pool, transport",
    r"hearers?|bearers?|misheard|deaf(ness|ened)?\b": "subscriber, transport, unavailable",
    r"distrust\w*|hasten\w*|parting": "drop idle connections, send urgently, release",
    r"lin(e|es|ed|ing) up\b|stands? in (the )?line": "join the queue",
    r"pass(es|ed|ing)? on\b(?! (to )?(the )?(exception|status))": "hand off",
    r"for ever\b|(is|are|be|was|were|held|renewed) no more\b": "indefinitely, no longer",
}


@pytest.mark.parametrize("name", FILES)
def test_file_uses_the_words_of_the_field(name: str) -> None:
    lines = (ROOT / name).read_text().splitlines()

    found = [
        f"{number}: {match.group()!r}: say {instead}"
        for number, line in enumerate(lines, 1)
        for old, instead in INSTEAD.items()
        if (match := re.search(rf"\b({old})", line.replace("_", " "), re.IGNORECASE))
    ]

    assert found == []
