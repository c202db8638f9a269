"""Flask: the hook is set in the app factory, the route decorator goes OUTSIDE @redis_lock.

Flask registers the function that the route decorator receives. With the two swapped it would
register the undecorated function, without a lock. One error handler responds with 503 and
Retry-After.

Prints, among others::

    free: 200 paid order 7
    busy: 503 order:7 is busy, Retry-After ...
    another order meanwhile: 200 paid order 8
"""

import math
import pathlib
import sys

import redis
from flask import Flask

sys.path.extend(map(str, pathlib.Path(__file__).resolve().parents[:2]))
from _server import server_url

from redis_lock_decorators import LockTimeoutError, acquire_lock, configure, redis_lock


def create_app(redis_url):
    app = Flask(__name__)
    app.config["REDIS_URL"] = redis_url
    configure(get_redis_connection=lambda: redis.Redis.from_url(app.config["REDIS_URL"]))
    app.register_error_handler(LockTimeoutError, busy)
    add_routes(app)
    return app


def add_routes(app):
    @app.post("/orders/<int:order_id>/payment")
    @redis_lock("order:{order_id}", acquire_time=0.2, expire=30)
    def pay(order_id):
        return f"paid order {order_id}"


def busy(error):
    wait = math.ceil(min(error.free_in or 1, 60))
    return f"{error.lock_name} is busy", 503, {"Retry-After": str(wait)}


def show(what, response):
    wait = f", Retry-After {response.headers['Retry-After']}" if response.status_code != 200 else ""
    print(f"{what}: {response.status_code} {response.text}{wait}")


def main():
    with server_url() as url, redis.Redis.from_url(url) as another_process:
        client = create_app(url).test_client()
        show("free", client.post("/orders/7/payment"))
        acquire_lock(another_process, "order:7", expire=3)
        show("busy", client.post("/orders/7/payment"))
        show("another order meanwhile", client.post("/orders/8/payment"))


if __name__ == "__main__":
    main()
