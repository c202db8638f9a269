"""A parent holds a lock, and forks a child: ``python forks.py``."""

import os

from redis_lock_decorators import RedisLock


def main():
    with RedisLock("report") as lease:
        child = os.fork()
        if not child:
            is_free = RedisLock("report").acquire(blocking=False) is not None
            print(
                f"in the child: lost {lease.lost}, free {is_free}, owned {lease.owned()}",
                flush=True,
            )
            os._exit(0)
        os.waitpid(child, 0)
        print("in the parent: owned", lease.owned())


if __name__ == "__main__":
    main()
