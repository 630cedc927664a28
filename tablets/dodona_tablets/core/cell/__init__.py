"""What all parts of a cell share, and what people see of it."""
