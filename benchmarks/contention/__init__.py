"""The parts of ``contended.py``."""
