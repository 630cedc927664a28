"""The text of a transcript: its steps, and the text with other effects.

Owns: the format. Must not import anything of Dodona: a transcript is text here.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

FILES: Final = sorted((Path(__file__).parent / "commits").glob("*.txt"))
RULE: Final = "----"
NOTHING: Final = "nothing"
"""The effects of a step without effects."""


class Step(NamedTuple):
    """A command, where it stands, and the effects that the text promises."""

    line: int
    """From 1."""
    command: str
    effects: list[str]


def steps_of(text: str) -> Iterator[Step]:
    """Return the steps in their order. Raises ValueError for a command without a rule below."""
    command: tuple[int, str] | None = None
    effects: list[str] | None = None
    for number, line in enumerate((*text.splitlines(), ""), start=1):
        if effects is not None and command is not None:
            if line.strip():
                effects.append(line)
            else:
                yield Step(*command, effects)
                command = effects = None
        elif line == RULE and command is not None:
            effects = []
        elif line.strip() and not line.startswith("#"):
            if command is not None:
                raise ValueError(f"line {number}: {RULE} is missing below {command[1]!r}")
            command = number, line
        elif command is not None:
            raise ValueError(f"line {number}: {RULE} is missing below {command[1]!r}")


def rewritten(text: str, run: Callable[[str], list[str]]) -> str:
    """Return the text with the effects that `run` gives for each command, in order."""
    lines = text.splitlines()
    run_steps = [(step, run(step.command) or [NOTHING]) for step in steps_of(text)]
    for step, effects in reversed(run_steps):
        begin = step.line + 1
        lines[begin : begin + len(step.effects)] = effects
    return "\n".join(lines) + "\n"
