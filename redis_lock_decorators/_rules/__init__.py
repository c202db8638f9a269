"""Pure functions: no clock, no network, no Redis."""
