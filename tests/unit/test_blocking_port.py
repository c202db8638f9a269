"""Work that a blocking port finishes although its caller is interrupted."""

from __future__ import annotations

import pytest
import redis
from support.releases import Limit

from redis_lock_decorators._io.blocking_port import BlockingPort, run


class Work:
    """Work that raises the given errors one by one, then succeeds."""

    def __init__(self, *errors: BaseException) -> None:
        self.errors = list(errors)
        self.begun = self.done = 0

    async def __call__(self) -> None:
        self.begun += 1
        if self.errors:
            raise self.errors.pop(0)
        self.done += 1


def shielded(work: Work) -> None:
    run(BlockingPort.shield(None, work))  # type: ignore[arg-type]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), Limit(), TimeoutError()])
def test_interrupted_work_is_repeated_and_the_interrupt_raised(error: BaseException) -> None:
    work = Work(error)

    with pytest.raises(type(error)):
        shielded(work)

    assert work.done == 1


def test_work_that_is_interrupted_twice_is_abandoned() -> None:
    work = Work(Limit(), KeyboardInterrupt())

    with pytest.raises(KeyboardInterrupt):
        shielded(work)

    assert work.begun == 2


def test_error_of_the_work_is_ignored() -> None:
    work = Work(redis.ConnectionError("gone"))

    shielded(work)

    assert work.begun == 1


def test_work_of_a_discarded_flow_is_abandoned() -> None:
    work = Work(GeneratorExit())

    with pytest.raises(GeneratorExit):
        shielded(work)

    assert work.begun == 1
