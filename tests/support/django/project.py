"""A Django project with two databases, of which one has ATOMIC_REQUESTS."""

from __future__ import annotations

import os
from typing import Any

import django
import django.conf

APPLICATION = "redis_lock_decorators.contrib.django"
SQLITE = {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}


def set_up(**changed: Any) -> None:
    """Configure Django."""
    given: dict[str, Any] = {
        "INSTALLED_APPS": [APPLICATION],
        "REDIS_LOCK": {"URL": os.environ["REDIS_URL"], "OPTIONS": {"prefix": "site:lock:"}},
        "CACHES": {
            "default": {
                "BACKEND": f"{APPLICATION}.cache.RedisCache",
                "LOCATION": os.environ["REDIS_URL"],
            },
            "local": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"},
        },
        "DATABASES": {"default": SQLITE | {"ATOMIC_REQUESTS": True}, "other": SQLITE},
        "ALLOWED_HOSTS": ["testserver"],
        "LOGGING_CONFIG": None,
    }
    django.conf.settings.configure(**(given | changed))
    django.setup()
