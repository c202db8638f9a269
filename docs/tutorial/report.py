"""Write a report in steps, and notice when the lock is lost."""

import sys
import time

from redis_lock_decorators import LockLostError, current_lease, redis_lock


@redis_lock("report", expire=2)
def write_report():
    for part in range(1, 6):
        current_lease().check()  # raises LockLostError if the lock was lost
        print(f"writes part {part}", flush=True)
        time.sleep(1)


if __name__ == "__main__":
    try:
        write_report()
    except LockLostError:
        sys.exit("the report is not finished")
