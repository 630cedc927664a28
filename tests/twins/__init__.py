"""Makes the blocking modules of the client of the asyncio ones: `python -m twins`."""
