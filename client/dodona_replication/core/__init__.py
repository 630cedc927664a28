"""The cores of replicated logs: plain data and rules, without input and output."""
