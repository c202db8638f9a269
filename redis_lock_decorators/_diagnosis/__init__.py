"""The checks behind ``redis_lock_decorators.diagnosis``, one module for each theme."""
