"""What the public classes for threads and for asyncio share. Private."""
