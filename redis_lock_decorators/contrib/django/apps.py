"""The Django application, which configures the locks of the process."""

from __future__ import annotations

from typing import Any

from django.apps import AppConfig
from django.core.signals import setting_changed

from redis_lock_decorators.contrib.django.connection import SETTING, configure_locks


class RedisLockConfig(AppConfig):
    """The locks of a Django project."""

    name = "redis_lock_decorators.contrib.django"
    label = "redis_lock"
    verbose_name = "Redis locks"

    def ready(self) -> None:
        """Configure the locks; again if a test overrides the setting."""
        configure_locks()
        setting_changed.connect(_on_change, dispatch_uid=SETTING)


def _on_change(*, setting: str, **_: Any) -> None:
    if setting == SETTING:
        configure_locks()
