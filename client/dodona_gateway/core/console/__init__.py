"""The console's sans-IO half: what servers tell, rates, charts, and how values are shown."""
