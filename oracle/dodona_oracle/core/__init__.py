"""The oracle's cores: state machines without I/O that return effects."""
