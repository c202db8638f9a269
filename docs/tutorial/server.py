"""A server for the tutorial, until Ctrl-D or Ctrl-C."""

import sys

from redis_lock_decorators.testing import LocalServer

if __name__ == "__main__":
    with LocalServer() as server:
        print(f"export REDIS_URL={server.url}", flush=True)
        sys.stdin.read()
