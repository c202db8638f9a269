"""The help and the shell completion of ``redis-lock``."""

from __future__ import annotations

from typing import Any

import pytest
from click.testing import CliRunner
from support.cli import ran

from redis_lock_decorators.cli import main


def test_help_lists_verbs_exit_codes_and_shells() -> None:
    done = ran("--help")

    assert done.code == 0
    for part in (*main.commands, "69", "75", "130", "bash_source", "zsh_source", "fish_source"):
        assert part in done.out
    assert max(map(len, done.out.splitlines())) <= 100


@pytest.mark.parametrize("verb", list(main.commands))
def test_each_verb_explains_itself(verb: str) -> None:
    done = CliRunner().invoke(main, [verb, "--help"])

    assert done.exit_code == 0
    assert len(done.output.splitlines()) > 5


def test_lock_names_are_completed(server: Any, direct: Any, name: str) -> None:
    for end in ("a", "b"):
        direct.set(f"sys:lock:{name}-{end}", "external", px=60_000)
    options = {"COMP_WORDS": f"redis-lock show {name}", "COMP_CWORD": "2"}

    found = ran(url=server.url, _REDIS_LOCK_COMPLETE="bash_complete", **options)
    nothing = ran(url="redis://127.0.0.1:1", _REDIS_LOCK_COMPLETE="bash_complete", **options)

    assert found.out.split() == [f"plain,{name}-a", f"plain,{name}-b"]
    assert (nothing.out.strip(), nothing.err) == ("", "")
