"""Exceptions of classes that other libraries define."""

from __future__ import annotations


def exception_of(name: str, *bases: type, module: str) -> Exception:
    """An exception of a new class with this name and module."""
    kind = type(name, bases or (Exception,), {"__module__": module})
    error: Exception = kind("wrong")
    return error
