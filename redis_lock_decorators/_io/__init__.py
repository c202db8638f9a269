"""The only code that uses clients, threads and clocks. Private."""
