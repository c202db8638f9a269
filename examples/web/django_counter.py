"""Django: visits of pages, counted in a database by the worker processes of gunicorn or uvicorn.

The first line creates the tables; the server of the cache and the locks is in the environment::

    python django_counter.py
    REDIS_URL=redis://localhost gunicorn --workers 2 --threads 4 django_counter:app
    REDIS_URL=redis://localhost uvicorn --workers 2 django_counter:async_app
"""

import os
import time

import django
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.core.wsgi import get_wsgi_application
from django.db import connection, models, transaction
from django.http import JsonResponse
from django.urls import path
from django.views import View

from redis_lock_decorators.contrib.django import lock_view, until_commit

if not settings.configured:  # in a project: settings.py
    settings.configure(
        INSTALLED_APPS=["redis_lock_decorators.contrib.django"],
        REDIS_LOCK={
            "CACHE": "default",
            "OPTIONS": {"acquire_time": 20, "expire": 2, "owner_info": True},
        },
        CACHES={
            "default": {
                "BACKEND": "redis_lock_decorators.contrib.django.cache.RedisCache",
                "LOCATION": os.environ.get("REDIS_URL", "redis://localhost:6379/0"),
            },
        },
        DATABASES={
            "default": {
                "ENGINE": "django.db.backends.sqlite3",
                "NAME": "db.sqlite3",
                "ATOMIC_REQUESTS": True,
            },
        },
        ALLOWED_HOSTS=["*"],
        ROOT_URLCONF=__name__,
    )
    django.setup()


class Page(models.Model):
    name = models.CharField(primary_key=True, max_length=100)
    visits = models.IntegerField(default=0)

    class Meta:
        app_label = "counter"


class Visit(models.Model):
    page = models.ForeignKey(Page, on_delete=models.CASCADE)

    class Meta:
        app_label = "counter"


@lock_view("page:{name}")
def visit(request, name):
    return visit_without_lock(request, name)


@lock_view("page:{name}", acquire_time=0, status=409)
class TryToVisit(View):
    def post(self, request, name):
        return visit_without_lock(request, name)


@lock_view("page:{name}")
@transaction.non_atomic_requests
async def visit_async(request, name):
    page, _ = await Page.objects.aget_or_create(name=name)
    await Visit.objects.acreate(page=page)
    page.visits += 1
    await page.asave()
    return JsonResponse({"visits": page.visits})


def visit_by_service(request, name):
    count_visit(name, float(request.GET.get("seconds", 0.01)))
    return JsonResponse({})


def count_visit(name, seconds):
    """A function that a view, a task or another function calls, in a transaction or not."""
    with until_commit(f"page:{name}") as lease:
        page, _ = Page.objects.get_or_create(name=name)
        time.sleep(seconds)
        Visit.objects.create(page=page)
        page.visits += 1
        page.save()
        return lease.remaining()


@transaction.non_atomic_requests
def visit_without_lock(request, name):
    page, _ = Page.objects.get_or_create(name=name)
    time.sleep(float(request.GET.get("seconds", 0.01)))
    Visit.objects.create(page=page)
    page.visits += 1
    page.save()
    return JsonResponse({"visits": page.visits})


urlpatterns = [
    path("pages/<name>", visit),
    path("tries/<name>", TryToVisit.as_view()),
    path("async/<name>", visit_async),
    path("services/<name>", visit_by_service),
    path("bare/<name>", visit_without_lock),
]
app, async_app = get_wsgi_application(), get_asgi_application()

if __name__ == "__main__":
    with connection.schema_editor() as editor:
        editor.create_model(Page)
        editor.create_model(Visit)
