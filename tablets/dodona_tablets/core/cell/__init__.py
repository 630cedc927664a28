"""The state that all parts of a cell share, and what people see of a cell."""
