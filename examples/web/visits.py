"""Counters in files, which are wrong if two processes increment them at a time.

Each visit appends a line to a log, which several processes may do, and increments a counter.
"""

import os
import pathlib


def counted(page):
    """The counter of a page."""
    file = pathlib.Path(f"{page}.count")
    return int(file.read_text()) if file.exists() else 0


def logged(page):
    """The number of visits in the log of a page."""
    file = pathlib.Path(f"{page}.log")
    return len(file.read_text().splitlines()) if file.exists() else 0


def save(page, count):
    """Log a visit, and store the counter."""
    write(f"{page}.log", "visit\n", os.O_APPEND)
    write(f"{page}.count", f"{count:08}")


def write(path, text, flags=0):
    file = os.open(path, os.O_WRONLY | os.O_CREAT | flags, 0o600)
    os.write(file, text.encode())
    os.close(file)
