"""Flask: visits of pages, counted by the worker processes of gunicorn.

The server of the locks is in the environment::

    FLASK_REDIS_LOCK_URL=redis://localhost gunicorn --workers 2 --threads 4 flask_counter:app
"""

import time

import visits
from flask import Flask, request

from redis_lock_decorators.contrib.flask import FlaskLocks

locks = FlaskLocks(acquire_time=20, expire=2, owner_info=True)


def create_app():
    app = Flask(__name__)
    app.config.from_prefixed_env()  # REDIS_LOCK_URL
    locks.init_app(app)
    app.add_url_rule("/pages/<page>", view_func=visit, methods=["POST"])
    app.add_url_rule("/bare/<page>", view_func=visit_without_lock, methods=["POST"])
    app.add_url_rule("/tries/<page>", view_func=try_to_visit, methods=["POST"])
    return app


@locks.redis_lock("page:{page}")
def visit(page):
    return visit_without_lock(page)


@locks.redis_lock("page:{page}", acquire_time=0)
def try_to_visit(page):
    return visit_without_lock(page)


def visit_without_lock(page):
    count = visits.counted(page)
    time.sleep(request.args.get("seconds", 0.01, type=float))
    visits.save(page, count + 1)
    return {"visits": count + 1}


app = create_app()
