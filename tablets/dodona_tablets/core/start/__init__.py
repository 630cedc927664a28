"""Recovery: from the log to a cell, and what it found undecided."""
