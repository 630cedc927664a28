"""Mutation testing: small changes of the cores, each of which a test must notice."""
