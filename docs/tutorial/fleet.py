"""Run three workers, kill one of them, and show that all invoices are billed."""

import os
import pathlib
import subprocess
import sys
import time

import redis

WORKER = pathlib.Path(__file__).with_name("worker.py")
BILLED = "tutorial:billed"


def main():
    shop = redis.Redis.from_url(os.environ.get("REDIS_URL", "redis://localhost:6379/0"))
    shop.delete(BILLED)
    workers = [
        subprocess.Popen([sys.executable, WORKER, name], stdout=subprocess.DEVNULL)
        for name in ("first", "second", "third")
    ]
    while shop.scard(BILLED) < 3:
        time.sleep(0.01)
    workers[0].kill()
    print("the first worker is killed; some invoices are billed:", 0 < shop.scard(BILLED) < 12)
    codes = [worker.wait() for worker in workers]
    print("exit codes:", *codes)
    print("billed:", *sorted(map(int, shop.smembers(BILLED))))


if __name__ == "__main__":
    main()
