"""Responses of locked views."""

from __future__ import annotations

from typing import Any

from django.http import HttpResponse

from redis_lock_decorators.contrib._busy import TEXT, retry_after
from redis_lock_decorators.errors import ConfigurationError, LockTimeoutError


def busy(status: int, error: LockTimeoutError) -> HttpResponse:
    headers = {"Retry-After": retry_after(error)}
    return HttpResponse(TEXT, status=status, headers=headers, content_type="text/plain")


def refuse_stream(response: Any) -> Any:
    if getattr(response, "streaming", False) and not getattr(response, "file_to_stream", None):
        raise ConfigurationError("the lock would be released before the body of a stream is sent")
    return response
