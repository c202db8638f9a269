"""The flows of a lock, written once for threads and asyncio over a small port."""
