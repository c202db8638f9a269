"""Every option is a field of ``Options``, a public keyword, and a row of the README."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

from redis_lock_decorators._rules.options import Options
from redis_lock_decorators._shared.settings import OPTION_NAMES, KeywordOptions

README = (Path(__file__).parents[2] / "README.rst").read_text()
#: The options of ``Options`` that may also be given by position.
POSITIONAL = {"acquire_time", "expire"}


def test_every_field_of_options_is_a_keyword() -> None:
    fields = {field.name for field in dataclasses.fields(Options) if field.init}

    assert fields == OPTION_NAMES
    assert fields - POSITIONAL == set(KeywordOptions.__annotations__)


def test_every_option_has_a_row_in_the_readme() -> None:
    rows = set(re.findall(r"^``(\w+)``", README[README.index("\nOptions\n---") :], re.MULTILINE))

    assert sorted(OPTION_NAMES - rows) == []
