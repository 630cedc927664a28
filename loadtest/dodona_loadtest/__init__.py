"""Load tests and benchmarks of Dodona, side by side with its peers. Uses the public API only."""
