"""A model of replicated logs, small enough that a program looks at every state of it.
`python -m replication_model` explores it.

Owns: the protocol's design as data and steps, and bugs that break one rule each. The rules are on
docs/explanation/replication.md, with their numbers. Must not import: the product. The model says
what the product has to do, so it must not change with it.
"""
