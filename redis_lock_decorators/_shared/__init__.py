"""What both faces, threads and asyncio, are made of. Private."""
