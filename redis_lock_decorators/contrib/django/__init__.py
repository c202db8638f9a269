"""Django: locked views, locks until the commit, and the connection from the settings.

With ``"redis_lock_decorators.contrib.django"`` in ``INSTALLED_APPS`` the setting ``REDIS_LOCK``
configures all locks of the process: see ``redis_lock_decorators.contrib.django.connection``.
"""

from redis_lock_decorators.contrib.django.commits import until_commit
from redis_lock_decorators.contrib.django.views import lock_view

__all__ = ["lock_view", "until_commit"]
