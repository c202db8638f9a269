"""Send mails in asyncio tasks, one at a time to each user."""

import asyncio
import time

from redis_lock_decorators import redis_lock
from redis_lock_decorators.asyncio import RedisLock

BEGAN = time.monotonic()


def report(event):
    print(f"{time.monotonic() - BEGAN:.1f}  {event}")


@redis_lock("mail:{user}")
async def send(user, text):
    report(f"{user}: {text} begins")
    await asyncio.sleep(0.2)
    report(f"{user}: {text} is sent")


async def main():
    async with RedisLock("newsletter"):
        await asyncio.gather(
            send("ada", "greeting"),
            send("ada", "invoice"),
            send("grace", "greeting"),
        )


if __name__ == "__main__":
    asyncio.run(main())
