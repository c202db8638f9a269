"""Finalizers set context variables while the garbage collector interrupts another ``set``."""

from __future__ import annotations

import subprocess
import sys

import pytest
from support.installed import skip_without

#: Garbage is collected after so few objects that a collection often interrupts ``ContextVar.set``.
PROGRAM = """
import gc
from contextvars import ContextVar
from redis_lock_decorators import RedisLock
from redis_lock_decorators._shared.context_variables import assign
from redis_lock_decorators.testing.fake import FakeServer

variable = ContextVar("variable", default=None)
others = [ContextVar(f"other {number}") for number in range(20)]


class Abandoned:
    def __init__(self):
        self.itself = self

    def __del__(self):
        ACTION


def use_lock():
    with RedisLock("name"):
        pass


with FakeServer():
    use_lock()
    for threshold in (2, 3, 4, 5, 2, 3):
        gc.set_threshold(threshold)
        for number in range(ROUNDS):
            Abandoned()
            others[number % 20].set(object())
            assign(variable, object())
            variable.get()
    gc.set_threshold(700)
    use_lock()
print("survived")
"""


@pytest.mark.parametrize(
    ("action", "rounds"), [("assign(variable, object())", 3000), ("use_lock()", 100)]
)
def test_finalizers_may_set_context_variables(action: str, rounds: int) -> None:
    program = PROGRAM.replace("ACTION", action).replace("ROUNDS", str(rounds))

    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=50, check=False
    )

    assert (ended.returncode, ended.stdout) == (0, "survived\n"), ended.stderr


@pytest.mark.parametrize("library", ["gevent", "eventlet"])
def test_program_of_greenlets_ends_without_messages(library: str) -> None:
    skip_without(library)
    patched = {
        "gevent": "from gevent import monkey; monkey.patch_all()",
        "eventlet": "import eventlet; eventlet.monkey_patch()",
    }
    program = f"{patched[library]}; import redis_lock_decorators; print('end')"

    ended = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )

    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "end\n", "")
