"""The oracle's cores: sans-IO state machines that return effects."""
