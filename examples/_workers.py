"""Worker processes that end with the program that started them, even if it is killed."""

import contextlib
import os
import pathlib
import subprocess
import sys
from collections.abc import Iterator

#: Kills a process group as soon as its standard input is closed, which a killed parent does, too.
GUARD = """
import contextlib, os, signal, sys
sys.stdin.read()
with contextlib.suppress(ProcessLookupError):
    os.killpg(int(sys.argv[1]), signal.SIGKILL)
"""


@contextlib.contextmanager
def running(*commands: list[str], **environment: str) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Run ``python -m`` commands; their modules may be next to this file. Ends them by SIGTERM."""
    here = pathlib.Path(__file__).resolve().parent
    paths = [str(here), str(here.parent)]
    paths += [given["PYTHONPATH"] for given in (environment, os.environ) if "PYTHONPATH" in given]
    environment = {**os.environ, **environment, "PYTHONPATH": os.pathsep.join(paths)}
    workers, guards = [], []
    try:
        for command in commands:
            worker = subprocess.Popen(
                [sys.executable, "-m", *command], env=environment, start_new_session=True
            )
            workers.append(worker)
            guard = [sys.executable, "-c", GUARD, str(worker.pid)]
            guards.append(subprocess.Popen(guard, stdin=subprocess.PIPE))
        yield workers
    finally:
        for worker in workers:
            worker.terminate()
        for worker in workers:
            with contextlib.suppress(subprocess.TimeoutExpired):
                worker.wait(10)
        for guard_process in guards:
            guard_process.communicate()
        for worker in workers:
            worker.wait()
