"""Waiting in the queue of a lock. Private."""
