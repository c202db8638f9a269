"""Run a command in the block of a lock."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress

from redis_lock_decorators.cli import exit_codes
from redis_lock_decorators.cli.child import FENCE, Child
from redis_lock_decorators.cli.guard import Guard
from redis_lock_decorators.cli.output import note
from redis_lock_decorators.cli.signals import Interrupted, Signals, ending
from redis_lock_decorators.cli.supervision import Supervision
from redis_lock_decorators.errors import LockLostError
from redis_lock_decorators.lease import Lease
from redis_lock_decorators.redislock import RedisLock

STANDARD_ERROR = 2
#: Returns the lock, given what to call when it is lost.
MakeLock = Callable[[Callable[..., None]], RedisLock]


class CommandFailed(Exception):
    """The command ended with another status than 0: ``min_hold`` has no effect.

    Attributes:
        code: the exit code.
    """

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class NotExecuted(Exception):
    """The command could not be executed.

    Attributes:
        error: the reason.
    """

    def __init__(self, error: OSError) -> None:
        super().__init__(error)
        self.error = error


def run_held(make_lock: MakeLock, command: Sequence[str], kill_after: float) -> int:
    """Acquire the lock, run the command, release the lock; return the exit code.

    Raises:
        NotExecuted: the command cannot be executed.
        Interrupted: a signal ended the command, or the wait for the lock.
        LockTimeoutError: the lock is busy.
        redis.RedisError: the server does not answer or refuses a request.
    """
    _open_standard_files()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # if it is ignored, no status is kept
    # No process must leave by an exception before it is set up.
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ending())
    child = Child(command, blocked)
    guard = Guard(child.pid, kill_after)
    signals = Signals()
    try:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        return _run_held(make_lock(signals.wake), child, guard, signals, kill_after)
    finally:
        child.cancel()
        guard.dismiss()


def _run_held(
    lock: RedisLock, child: Child, guard: Guard, signals: Signals, kill_after: float
) -> int:
    is_lost = False
    try:
        with lock as lease:
            signals.record()
            _refuse_interrupted(signals)
            supervision = Supervision(child, guard, signals, lease, kill_after)
            _start(supervision, lease)
            status = supervision.finish()
            is_lost = supervision.is_lost
            if not is_lost:
                _refuse_failure(status, supervision.was_in_foreground)
    except CommandFailed as failure:
        return failure.code
    except LockLostError as error:
        if not is_lost:
            note(str(error))
        return exit_codes.LOST
    return exit_codes.LOST if is_lost else exit_codes.OK


def _open_standard_files() -> None:
    """Keep pipes from getting the numbers of standard files that were closed."""
    with suppress(OSError):
        while (file := os.open(os.devnull, os.O_RDWR)) <= STANDARD_ERROR:
            pass
        os.close(file)


def _refuse_interrupted(signals: Signals) -> None:
    """Do not start the command if a signal has arrived since the acquisition."""
    for number in signals.wait(0):
        if number in ending():
            raise Interrupted(number)


def _start(supervision: Supervision, lease: Lease) -> None:
    variables = {
        "REDIS_LOCK_NAME": lease.lock_name,
        "REDIS_LOCK_KEY": lease.key,
        "REDIS_LOCK_IDENTIFIER": lease.identifier,
    }
    if lease.fence is not None:
        variables[FENCE] = str(lease.fence)
    try:
        supervision.start(variables)
    except OSError as error:
        raise NotExecuted(error) from error


def _refuse_failure(status: int, was_in_foreground: bool) -> None:
    """Raise an exception unless the command succeeded."""
    if os.WIFSIGNALED(status):
        raise Interrupted(os.WTERMSIG(status), was_in_foreground)
    if code := os.WEXITSTATUS(status):
        raise CommandFailed(code)
