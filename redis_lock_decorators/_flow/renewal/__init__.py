"""Renewing the leases that are held. Private."""
