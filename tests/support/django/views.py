"""Locked views."""

from __future__ import annotations

import io
from functools import partial, wraps

from support.django.project import set_up

set_up(ROOT_URLCONF="support.django.views")

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.db import connection, transaction
from django.http import FileResponse, HttpResponse, StreamingHttpResponse
from django.test import AsyncClient, Client, SimpleTestCase, TestCase
from django.urls import path
from django.utils.decorators import method_decorator
from django.views import View

from redis_lock_decorators import (
    ConfigurationError,
    LockLostError,
    LockNameError,
    RedisLock,
    acquire_lock,
    force_release,
)
from redis_lock_decorators.contrib.django import lock_view
from redis_lock_decorators.contrib.django.connection import factories
from support.waiting import until

lock = lock_view("article:{pk}", acquire_time=0)
seen: list[object] = []


def is_locked():
    return RedisLock("article:7").locked()


def edit(request, pk):
    transaction.on_commit(partial(seen.append, "committed"))
    transaction.on_commit(lambda: seen.append(is_locked()))
    seen.append(connection.in_atomic_block)
    if request.GET.get("break"):
        force_release("article:7")
    if request.GET.get("hook"):
        transaction.on_commit(lambda: 1 / 0)
    if request.GET.get("fail"):
        raise RuntimeError
    return HttpResponse(f"edited {pk}: {is_locked()}")


def undo(request, pk):
    transaction.set_rollback(True)
    return HttpResponse("failed", status=400)


def undo_and_stream(request, pk):
    transaction.set_rollback(True)
    return StreamingHttpResponse(iter([b"row"]))


def name_of(request, pk):
    seen.append(connection.in_atomic_block)
    return f"article:{pk}"


async def edit_async(request, pk):
    return HttpResponse(f"edited {pk}: {is_locked()}")


def other(view):
    @wraps(view)
    def respond(*args, **kwargs):
        return view(*args, **kwargs)

    return respond


class Edit(View):
    def get(self, request, pk):
        return edit(request, pk)


@lock
class Decorated(Edit):
    pass


@method_decorator(lock, name="dispatch")
class Dispatched(Edit):
    pass


@method_decorator([other, lock, other], name="dispatch")
class AmongOthers(Edit):
    pass


class OnlyGet(View):
    @method_decorator(lock)
    def get(self, request, pk):
        return edit(request, pk)


class EditAsync(View):
    async def get(self, request, pk):
        return await edit_async(request, pk)


@method_decorator([lock, transaction.non_atomic_requests], name="dispatch")
class DispatchedAsync(EditAsync):
    pass


@method_decorator(lock, name="dispatch")
class AtomicAsync(EditAsync):
    pass


class OnlyGetStream(View):
    @method_decorator(lock)
    def get(self, request, pk):
        return StreamingHttpResponse(iter([b"row"]))


@transaction.non_atomic_requests(using="other")
def edit_without_other(request, pk):
    return edit(request, pk)


def edit_kind(request, pk, kind):
    return edit(request, pk)


SYNC = {
    "partial": lock_view("{kind}:{pk}", acquire_time=0)(partial(edit_kind, kind="article")),
    "function": lock(edit),
    "named": lock_view(get_lock_name=name_of, acquire_time=0)(edit),
    "view": lock(Edit.as_view()),
    "decorated": Decorated.as_view(),
    "dispatched": Dispatched.as_view(),
    "others": AmongOthers.as_view(),
    "above": other(lock(edit)),
    "without-other": lock(edit_without_other),
    "get": OnlyGet.as_view(),
}
KEPT = {
    "kept": lock_view("article:{pk}", acquire_time=0, min_hold=0.5)(edit),
    "undone": lock_view("article:{pk}", acquire_time=0, min_hold=5)(undo),
}
OUTER = {
    "outer": transaction.atomic(using="other")(lock(edit)),
    "outer-class": transaction.atomic(using="other")(Decorated.as_view()),
}
ASYNC = {
    "async": lock(transaction.non_atomic_requests(edit_async)),
    "async-class": DispatchedAsync.as_view(),
}
OTHERS = {
    "bare": edit,
    "bare-without-other": edit_without_other,
    "early": lock_view("article:{pk}", acquire_time=0, until_commit=False)(edit),
    "conflict": lock_view("article:{pk}", acquire_time=0, status=409)(edit),
    "non-atomic": lock(transaction.non_atomic_requests(lambda request, pk: edit(request, pk))),
    "atomic-async": AtomicAsync.as_view(),
    "stream": lock(lambda request, pk: StreamingHttpResponse(iter([b"row"]))),
    "undone-stream": lock(undo_and_stream),
    "get-stream": OnlyGetStream.as_view(),
    "file": lock(lambda request, pk: FileResponse(io.BytesIO(b"rows"))),
}
urlpatterns = [
    path(f"{name}/<int:pk>", view) for name, view in (SYNC | ASYNC | OTHERS | OUTER | KEPT).items()
]


class Views(SimpleTestCase):
    databases = "__all__"

    def setUp(self):
        seen.clear()

    def tearDown(self):
        assert not is_locked()

    def get(self, name, **query):
        client = Client(raise_request_exception=True)
        return client.get(f"/{name}/7", query)

    def test_lock_is_released_after_the_commit(self):
        for name in SYNC.keys() - {"get", "named"}:
            with self.subTest(name):
                seen.clear()

                assert self.get(name).content == b"edited 7: True"

                assert seen == [True, "committed", True]

    def test_transaction_begins_inside_the_lock(self):
        self.get("named")

        assert seen[:2] == [False, True]

    def test_decorated_method_releases_at_the_commit(self):
        assert self.get("get").content == b"edited 7: True"

        assert seen == [True, "committed", False]

    def test_lock_that_ends_with_the_view_is_free_before_the_commit(self):
        self.get("early")

        assert seen == [True, "committed", False]

    def test_failed_view_is_rolled_back_and_its_lock_released(self):
        for name in SYNC:
            with self.subTest(name), pytest.raises(RuntimeError):
                self.get(name, fail=1)
        assert "committed" not in seen

    def test_view_in_another_transaction_has_its_own(self):
        for name in OUTER:
            with self.subTest(name):
                seen.clear()
                with pytest.raises(RuntimeError):
                    self.get(name, fail=1)
                assert seen == [True]
                assert self.get(name).content == b"edited 7: True"
                assert seen[1:] == [True, "committed", True]

    def test_rest_of_min_hold_is_kept_only_if_the_work_was_done(self):
        """Django REST framework rolls back like this for the response to an exception."""
        assert self.get("undone").content == b"failed"
        assert not is_locked()
        assert self.get("kept").content == b"edited 7: True"
        assert is_locked()
        until(lambda: not is_locked())

    def test_hook_that_fails_after_the_commit_does_not_keep_the_lock(self):
        for name in SYNC:
            with self.subTest(name), pytest.raises(ZeroDivisionError):
                self.get(name, hook=1)
            assert not is_locked()
        assert seen.count("committed") == len(SYNC)

    def test_view_that_lost_its_lock_is_rolled_back(self):
        for name in SYNC:
            with self.subTest(name), pytest.raises(LockLostError):
                self.get(name, **{"break": 1})
        assert "committed" not in seen

    def test_busy_request_gets_423_and_retry_after(self):
        client = factories()[0]()
        acquire_lock(client, "article:7", expire=20, prefix="site:lock:")
        try:
            for name in SYNC | ASYNC:
                with self.subTest(name):
                    response = self.get(name)
                    assert response.status_code == 423
                    assert 15 <= int(response["Retry-After"]) <= 20
            assert self.get("conflict").status_code == 409
            assert "committed" not in seen
        finally:
            client.delete("site:lock:article:7")

    def test_async_views_hold_the_lock(self):
        for name in ASYNC:
            with self.subTest(name):
                assert self.get(name).content == b"edited 7: True"

    async def test_async_views_hold_the_lock_in_an_event_loop(self):
        for name in ASYNC:
            response = await AsyncClient().get(f"/{name}/7")
            assert response.content == b"edited 7: True"

    def test_async_class_with_atomic_requests_is_refused(self):
        with pytest.raises(ImproperlyConfigured):
            self.get("atomic-async")

    def test_view_without_atomic_requests_has_no_transaction(self):
        self.get("non-atomic")

        assert seen == ["committed", True, False]

    def test_views_that_were_decorated_keep_their_transactions(self):
        for name in ("bare", "bare-without-other"):
            with self.subTest(name):
                seen.clear()
                self.get(name)
                assert seen == [True, "committed", False]

    def test_streams_are_refused_but_files_are_not(self):
        for name in ("stream", "get-stream", "undone-stream"):
            with self.subTest(name), pytest.raises(ConfigurationError):
                self.get(name)
        assert b"".join(self.get("file").streaming_content) == b"rows"

    def test_unknown_fields_and_on_busy_are_refused_at_decoration(self):
        with pytest.raises(LockNameError):
            lock_view("article:{id}")(edit)
        with pytest.raises(ConfigurationError):
            lock_view("article:{pk}", on_busy="skip")
        with pytest.raises(ConfigurationError, match="name the lock"):
            lock_view(edit)
        for status in (None, "423", 200, 999_999, True):
            with self.subTest(status), pytest.raises(ConfigurationError, match="status="):
                lock_view("article:{pk}", status=status)
        with pytest.raises(ConfigurationError, match="name the lock"):
            lock_view()


class InTestCase(TestCase):
    databases = "__all__"

    def test_several_requests_of_a_test_enter_one_after_another(self):
        for name in [*SYNC] * 2:
            self.assertContains(self.client.get(f"/{name}/7"), "edited 7: True")

        assert not is_locked()
