"""Hooks for metrics and traces; each needs the extra of its name."""
