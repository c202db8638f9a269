"""Where leases are renewed: event loops and threads. Private."""
