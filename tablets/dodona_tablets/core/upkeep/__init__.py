"""What a cell does by itself: flushes, compactions, checkpoints."""
