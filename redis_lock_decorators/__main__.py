"""``python -m redis_lock_decorators``: the command ``redis-lock``."""

from redis_lock_decorators.cli import main

if __name__ == "__main__":
    main(prog_name="redis-lock")
