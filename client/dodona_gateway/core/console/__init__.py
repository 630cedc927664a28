"""The console's sans-IO half: what servers report, rates, charts, and how values are shown."""
