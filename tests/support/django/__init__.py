"""Test cases of Django, which run in a process of their own: settings are global."""
