"""Files of systemd that a page shows, and what would be run by them.

Owns: how systemd reads the few things that the pages' units have: `%i` and `%%`, `$$`, `${NAME}` of
`Environment=` and `EnvironmentFile=`. A file is a block of `ini` whose first line is its path.
"""

import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from documents.blocks import blocks_of

UNITS: Final = "/etc/systemd/system/"
_S: Final = {"": 1.0, "s": 1.0, "min": 60.0}

Files = Mapping[str, str]
"""Their texts, by path."""


class Command(NamedTuple):
    """What a unit runs."""

    words: list[str]
    environment: dict[str, str]

    @property
    def module(self) -> str:
        """What `python -m` runs."""
        return self.words[self.words.index("-m") + 1]

    @property
    def arguments(self) -> list[str]:
        """Those of the module."""
        return self.words[self.words.index("-m") + 2 :]


def files_of(page: str) -> dict[str, str]:
    """All that the page shows."""
    blocks = [it.text for it in blocks_of(page) if it.language == "ini"]
    return {text.splitlines()[0].removeprefix("# "): text for text in blocks}


def units_of(files: Files) -> list[str]:
    """The names of the services."""
    return [
        it.removeprefix(UNITS) for it in files if it.startswith(UNITS) and it.endswith(".service")
    ]


def options_of(files: Files, unit: str) -> Iterator[tuple[str, str]]:
    """Of all sections, in their order."""
    for line in files[UNITS + unit].splitlines():
        if line and line[0] not in "#[":
            name, _, value = line.partition("=")
            yield name, value


def option(files: Files, unit: str, name: str) -> str | None:
    """The one of that name, if it is there. Raises ValueError if it is there twice."""
    found = [value for it, value in options_of(files, unit) if it == name]
    if len(found) > 1:
        raise ValueError(f"{unit} has {name} {len(found)} times")
    return found[0] if found else None


def seconds(text: str) -> float:
    """A time. Raises AttributeError, KeyError."""
    number, unit = re.fullmatch(r"(\d+)([a-z]*)", text).groups()  # type: ignore[union-attr]
    return float(number) * _S[unit]


def command_of(files: Files, unit: str, instance: str = "") -> Command:
    """What its `ExecStart=` runs. Raises KeyError where a file or a variable is not there."""
    environment: dict[str, str] = {}
    (line,) = [value for name, value in options_of(files, unit) if name == "ExecStart"]
    for name, value in options_of(files, unit):
        text = _specified(value, instance)
        if name == "Environment":
            environment |= _pairs(text)
        elif name == "EnvironmentFile":
            found = files.get(text.removeprefix("-"))
            if found is None and not text.startswith("-"):
                raise KeyError(text)
            environment |= _pairs(found or "")
    words = [_expanded(it, environment) for it in shlex.split(_specified(line, instance))]
    return Command(words, environment)


def _pairs(text: str) -> dict[str, str]:
    lines = [it for it in text.splitlines() if it and not it.startswith("#")]
    return {name: value for name, _, value in (it.partition("=") for it in lines)}


def _specified(text: str, instance: str) -> str:
    return re.sub(r"%(.)", lambda it: {"%": "%", "i": instance}[it[1]], text)


def _expanded(word: str, environment: Mapping[str, str]) -> str:
    return re.sub(r"\$(?:\$|\{(\w+)\})", lambda it: environment[it[1]] if it[1] else "$", word)
