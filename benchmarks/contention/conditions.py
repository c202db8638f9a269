"""On what and when figures were measured."""

from __future__ import annotations

import datetime
import os
import platform

import redis


def conditions(client: redis.Redis, details: str) -> str:
    """The date, the versions and the machine, as one line for pages and pictures."""
    info = client.info("server")
    version = info.get("valkey_version") or info["redis_version"]
    name = f"{info.get('server_name', 'redis').capitalize()} {version}"
    return (
        f"{datetime.date.today():%Y-%m-%d}: {name}, redis-py {redis.__version__}, "
        f"Python {platform.python_version()}, {os.cpu_count()} cores, loopback; {details}"
    )
