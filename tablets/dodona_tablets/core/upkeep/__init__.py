"""Keep a cell in order: flush stores, compact chunks, and write checkpoints."""
