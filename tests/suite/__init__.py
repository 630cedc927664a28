"""How the tests are run: levels, phases, groups, reports; and how they wait (see `waiting`). Knows
nothing of what they test.

`python -m suite` runs a level (see `levels`) in phases (see `phases`); the Makefile has a command
for each. `python -m suite.steady` runs a few tests again and again on a busy machine.
"""
