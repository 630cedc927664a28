"""Parts of sans-IO cores: the effects that they ask their shells for, and counters. No I/O."""
