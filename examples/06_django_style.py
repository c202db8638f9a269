"""Django: the URL in the settings, the hook set in AppConfig.ready, a view under @redis_lock.

The connection is opened by the first locked request, in the process that serves it. A small
view decorator outside the lock responds with 409 and Retry-After while another request is editing.

With ATOMIC_REQUESTS Django commits after the view, when its lock is already released: the next
request would read the old data. So the view is excluded from it and commits inside the lock.

Prints, among others::

    article 7 is committed, still locked: True
    free: 200 saved article 7
    busy: 409 article 7 is being edited, Retry-After ...
    another article meanwhile: 200 saved article 8
"""

import functools
import math
import pathlib
import sys

import django
import redis
from django.apps import AppConfig
from django.conf import settings
from django.db import transaction
from django.http import HttpResponse
from django.test import Client
from django.urls import path

sys.path.extend(map(str, pathlib.Path(__file__).resolve().parents[:2]))
from _server import server_url

from redis_lock_decorators import LockTimeoutError, RedisLock, acquire_lock, configure, redis_lock


def get_redis_connection():
    return redis.Redis.from_url(settings.REDIS_URL)


class ArticlesConfig(AppConfig):
    """In a project: articles/apps.py."""

    name = __name__
    label = "articles"

    def ready(self):
        configure(get_redis_connection=get_redis_connection, prefix=settings.REDIS_LOCK_PREFIX)


def busy_is_409(view):
    @functools.wraps(view)
    def respond(request, article_id):
        try:
            return view(request, article_id)
        except LockTimeoutError as error:
            wait = math.ceil(min(error.free_in or 1, 60))
            text = f"article {article_id} is being edited"
            return HttpResponse(text, status=409, headers={"Retry-After": wait})

    return respond


@busy_is_409
@transaction.non_atomic_requests
@redis_lock("article:{article_id}", acquire_time=0.2, expire=30)
def save(request, article_id):
    with transaction.atomic():
        transaction.on_commit(lambda: committed(article_id))
    return HttpResponse(f"saved article {article_id}")


def committed(article_id):
    lock = RedisLock(f"article:{article_id}")
    print(f"article {article_id} is committed, still locked: {lock.locked()}")


urlpatterns = [path("articles/<int:article_id>/", save)]


def show(what, response):
    wait = f", Retry-After {response['Retry-After']}" if "Retry-After" in response else ""
    print(f"{what}: {response.status_code} {response.content.decode()}{wait}")


def main():
    with server_url() as url, redis.Redis.from_url(url) as another_process:
        # In a project these are in settings.py.
        apps = [f"{__name__}.{ArticlesConfig.__name__}"]
        database = {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}
        settings.configure(
            REDIS_URL=url,
            REDIS_LOCK_PREFIX="site:lock:",
            INSTALLED_APPS=apps,
            ROOT_URLCONF=__name__,
            ALLOWED_HOSTS=["testserver"],
            DATABASES={"default": database | {"ATOMIC_REQUESTS": True}},
        )
        django.setup()
        browser = Client()
        show("free", browser.post("/articles/7/"))
        acquire_lock(another_process, "article:7", expire=3, prefix="site:lock:")
        show("busy", browser.post("/articles/7/"))
        show("another article meanwhile", browser.post("/articles/8/"))


if __name__ == "__main__":
    main()
