"""The only code that touches the world: clients, threads, clocks."""
