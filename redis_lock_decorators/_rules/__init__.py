"""Pure decisions: no clock, no network, no Redis."""
