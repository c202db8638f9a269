"""The online-user counter: wrong without a lock, exact with @redis_lock, exact after a crash.

Several processes log users in and out; each login reads the count, computes, and writes
it back. Three scenes on one real server: without a lock, with @redis_lock, and with a
process killed by SIGKILL inside its critical section, after which the others wait until its lease
ends. The exit status is 1 if a scene fails. ``make demo`` runs it in about ten seconds.
"""

import contextlib
import dataclasses
import itertools
import multiprocessing
import pathlib
import sys
import time

import redis

sys.path.extend(map(str, pathlib.Path(__file__).resolve().parents[:2]))
from _server import server_url

from redis_lock_decorators import configure, current_lease, redis_lock

WORKERS = 6
STEPS = (1, 1, -1, 1, -1, 1, -1) * 200  # what each worker does: log in (1), log out (-1)
AFTERWARDS = 500  # sections to wait for after the kill
EXPIRE = 2.0
PATIENCE = 30
ONLINE, HISTORY, INSIDE, WAITS = KEYS = ("demo:online", "demo:history", "demo:in", "demo:waits")

processes = multiprocessing.get_context("spawn")


def change(conn, step, pause=0.0):
    """Read the count, compute, write back. The history records which state each write had read."""
    count, seen = conn.pipeline().get(ONLINE).llen(HISTORY).execute()
    time.sleep(pause)
    count = int(count or 0) + step
    conn.pipeline().set(ONLINE, count).rpush(HISTORY, f"{step}:{seen}").execute()


@redis_lock("online", expire=EXPIRE, acquire_time=PATIENCE)
def change_locked(conn, step):
    change(conn, step)


@redis_lock("online", expire=EXPIRE, acquire_time=PATIENCE)
def stall(conn):
    """Enter the section, report it, and hang between reading and writing."""
    conn.rpush(INSIDE, current_lease().key)
    change(conn, 1, pause=PATIENCE)


def connect(url):
    """The connection of a worker process, which its locks use too."""
    conn = redis.Redis.from_url(url)
    configure(get_redis_connection=lambda: conn)
    return conn


def work(url, ready, section):
    conn = connect(url)
    ready.wait(PATIENCE)
    for step in STEPS:
        section(conn, step)


def work_until(url, ready, stop):
    conn, longest = connect(url), 0.0
    ready.wait(PATIENCE)
    for step in itertools.takewhile(lambda _: not stop.is_set(), itertools.cycle(STEPS)):
        began = time.monotonic()
        change_locked(conn, step)
        longest = max(longest, time.monotonic() - began)
    conn.rpush(WAITS, longest)


def work_and_hang(url, ready):
    conn = connect(url)
    ready.wait(PATIENCE)
    time.sleep(0.5)  # the others work first
    stall(conn)


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The result of a scene: the numbers of one row of the table."""

    logins: int
    logouts: int
    expected: int
    counted: int
    lost: int
    seconds: float

    def is_exact(self):
        return self.counted == self.expected and self.lost == 0


def judge(conn, seconds):
    """Compare the count with the history, and count the lost updates."""
    history = [tuple(map(int, entry.split(b":"))) for entry in conn.lrange(HISTORY, 0, -1)]
    kept, position = 0, len(history)
    while position:  # from the last write to the one that it had read, and so on
        kept, position = kept + 1, history[position - 1][1]
    logins = sum(step == 1 for step, _ in history)
    logouts = len(history) - logins
    counted = int(conn.get(ONLINE) or 0)
    return Outcome(logins, logouts, logins - logouts, counted, len(history) - kept, seconds)


def side_by_side(conn, url, section):
    """All workers do all their steps concurrently."""
    conn.delete(*KEYS)
    ready = processes.Barrier(WORKERS + 1)
    with running([(work, url, ready, section)] * WORKERS) as workers:
        ready.wait(PATIENCE)
        began = time.monotonic()
        wait_for_sections(conn, WORKERS * len(STEPS), workers)
        join(workers)
    return judge(conn, time.monotonic() - began)


def kill_inside(conn, url):
    """Kill a worker in its section; return the outcome, and whether the others entered in time."""
    conn.delete(*KEYS)
    ready, stop = processes.Barrier(WORKERS + 1), processes.Event()
    others = [(work_until, url, ready, stop)] * (WORKERS - 1)
    with running([(work_and_hang, url, ready), *others]) as (victim, *workers):
        ready.wait(PATIENCE)
        began = time.monotonic()
        in_time = kill(conn, victim)
        wait_for_sections(conn, conn.llen(HISTORY) + AFTERWARDS, workers)
        stop.set()
        join(workers)
    waits = " ".join(f"{float(seconds):.2f}" for seconds in conn.lrange(WAITS, 0, -1))
    print(f"  longest wait of each of the others: {waits} s")
    return judge(conn, time.monotonic() - began), in_time


def kill(conn, victim):
    """Kill the victim inside its section; True if the others entered when its lease ended."""
    _, key = conn.blpop([INSIDE], timeout=PATIENCE)
    done = conn.llen(HISTORY)
    time.sleep(0.5)
    left = conn.pttl(key) / 1000
    victim.kill()
    killed = time.monotonic()
    excluded = conn.llen(HISTORY) == done
    print(f"  killed after {done} sections, before it wrote; its lease has {left:.2f} s left")
    while conn.llen(HISTORY) == done and time.monotonic() < killed + PATIENCE:
        time.sleep(0.005)
    waited = time.monotonic() - killed
    print(f"  the next section was done {waited:.2f} s after the kill")
    return excluded and left - 0.1 < waited < left + EXPIRE  # the machine may be busy


@contextlib.contextmanager
def running(tasks):
    workers = [processes.Process(target=task, args=args, daemon=True) for task, *args in tasks]
    try:
        for worker in workers:
            worker.start()
        yield workers
    finally:
        for worker in workers:
            worker.kill()
            worker.join()


def join(workers):
    for worker in workers:
        worker.join(PATIENCE)
        if worker.exitcode != 0:
            sys.exit(f"a worker ended with status {worker.exitcode}")


def wait_for_sections(conn, total, workers):
    """Show progress until that many sections are done or all workers have ended."""
    watched, shown = sys.stdout.isatty(), -1
    while shown < total:
        working = any(worker.is_alive() for worker in workers)
        done = min(conn.llen(HISTORY), total)
        if watched or 4 * done // total > 4 * shown // total:  # otherwise a line per quarter
            bar, end = "#" * (40 * done // total), "\r" if watched else "\n"
            print(f"  {bar:.<40} {done} of {total} sections", end=end, flush=True)
            shown = done
        if not working:
            break
        time.sleep(0.05)
    print(end="\n" if watched else "")


def table(outcomes):
    columns = ("logins", "logouts", "expected", "counted", "lost updates", "seconds", "per second")
    yield f"{'':<16}" + "".join(f"{column:>13}" for column in columns)
    for scene, outcome in outcomes.items():
        *numbers, seconds = dataclasses.astuple(outcome)
        numbers += [f"{seconds:.1f}", f"{(outcome.logins + outcome.logouts) / seconds:.0f}"]
        yield f"{scene:<16}" + "".join(f"{number:>13}" for number in numbers)


def main():
    outcomes = {}
    with server_url() as url, redis.Redis.from_url(url) as conn:
        for scene, section in (("without lock", change), ("with @redis_lock", change_locked)):
            print(f"{WORKERS} processes count users, {scene}")
            outcomes[scene] = side_by_side(conn, url, section)
        print(f"the same with @redis_lock(expire={EXPIRE:g}), and one process is killed")
        outcomes["with a kill"], in_time = kill_inside(conn, url)
        conn.delete(*KEYS)
    print("", *table(outcomes), "", sep="\n")
    exact = all(outcomes[scene].is_exact() for scene in ("with @redis_lock", "with a kill"))
    print("exact under the lock, also after the kill" if exact else "NOT EXACT under the lock")
    print(f"the others entered {'when' if in_time else 'NOT when'} the lease ended")
    return 0 if exact and in_time else 1


if __name__ == "__main__":
    sys.exit(main())
