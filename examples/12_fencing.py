"""Fencing: the database refuses the late write of a holder that was paused.

No lock can stop a process that is paused past the end of its lease and then continues. So each
row stores the fence (fencing token) of its last writer, and an UPDATE with a smaller one is
refused. Here a worker is stopped (SIGSTOP) while it holds the lock; another worker acquires the
lock and writes; then the first one continues and tries to write. Needs SQLAlchemy.

Prints, among others::

    first: holds the lock, fence ...
    first: paused until its lease has ended
    second: holds the lock, fence ...
    second: rows written: 1
    first: continues, rows written: 0
    first: LockLostError at the end of its block
    the second fence is greater: True
    report 7: written by second
"""

import contextlib
import multiprocessing
import os
import pathlib
import signal
import sys
import tempfile

import redis
from sqlalchemy import BigInteger, create_engine, insert, select, update
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

sys.path.extend(map(str, pathlib.Path(__file__).resolve().parents[:2]))
from _server import server_url

from redis_lock_decorators import LockLostError, RedisLock

PATIENCE = 30
processes = multiprocessing.get_context("spawn")


class Base(DeclarativeBase):
    pass


class Report(Base):
    __tablename__ = "reports"

    id: Mapped[int] = mapped_column(primary_key=True)
    author: Mapped[str]
    fence: Mapped[int] = mapped_column(BigInteger)


def write(engine, author, fence):
    """Return the number of rows written: none if a later holder has written."""
    change = (
        update(Report)
        .where(Report.id == 7, Report.fence < fence)  # <= to write several times in one lease
        .values(author=author, fence=fence)
    )
    with engine.begin() as connection:
        return connection.execute(change).rowcount


def work(url, database, author, parent):
    """Acquire the lock, write when the parent process says so, and report the results to it."""
    lock = RedisLock("report:7", client=redis.Redis.from_url(url), expire=1, fencing=True)
    try:
        with lock as lease:
            parent.send(lease.fence)
            parent.recv()  # long work, during which the process is paused
            parent.send(write(create_engine(database), author, lease.fence))
    except LockLostError as error:
        parent.send(type(error).__name__)


@contextlib.contextmanager
def worker(url, database, author):
    """Start a worker process; yields its id and a connection to it."""
    connection, end = processes.Pipe()
    process = processes.Process(target=work, args=(url, database, author, end), daemon=True)
    process.start()
    end.close()
    try:
        yield process.pid, connection
    finally:
        process.kill()
        process.join()


def answer(connection):
    if not connection.poll(PATIENCE):
        sys.exit("a worker does not answer")
    return connection.recv()


def main():
    with contextlib.ExitStack() as stack:
        url = stack.enter_context(server_url())
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        database = f"sqlite:///{folder}/reports.db"
        engine = create_engine(database)
        Base.metadata.create_all(engine)
        with engine.begin() as connection:
            connection.execute(insert(Report).values(id=7, author="none", fence=0))

        pid, first = stack.enter_context(worker(url, database, "first"))
        first_fence = answer(first)
        print("first: holds the lock, fence", first_fence)
        os.kill(pid, signal.SIGSTOP)
        print("first: paused until its lease has ended")

        _, second = stack.enter_context(worker(url, database, "second"))
        second_fence = answer(second)
        print("second: holds the lock, fence", second_fence)
        second.send("write")
        print("second: rows written:", answer(second))

        first.send("write")
        os.kill(pid, signal.SIGCONT)
        print("first: continues, rows written:", answer(first))
        print(f"first: {answer(first)} at the end of its block")

        print("the second fence is greater:", second_fence > first_fence)
        with engine.connect() as connection:
            print("report 7: written by", connection.scalar(select(Report.author)))
        engine.dispose()


if __name__ == "__main__":
    main()
