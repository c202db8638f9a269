"""How requests travel to a server, and their replies back. Private."""
