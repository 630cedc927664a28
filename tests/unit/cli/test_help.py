"""Every `--help` there is: it ends well and says what is written, brackets too."""

import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any, Final

import pytest
import typer.main
from typer.testing import CliRunner

from dodona_local.cli import application
from suite.levels import sample

WIDE: Final = {"COLUMNS": "4000", "TERMINAL_WIDTH": "4000"}


def commands_of(group: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield words, group
    for name, command in getattr(group, "commands", {}).items():
        yield from commands_of(command, (*words, name))


COMMANDS: Final = dict(commands_of(typer.main.get_command(application)))


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_help_contains_all_texts_of_a_command(words: tuple[str, ...]) -> None:
    command = COMMANDS[words]
    done = CliRunner().invoke(application, [*words, "--help"], env=WIDE)
    assert done.exit_code == 0, done.exception
    said = " ".join(re.sub(r"[│╭╮╰╯─]", " ", done.output).split())
    texts = [command.help, *(getattr(it, "help", None) for it in command.params)]
    inner = getattr(command, "commands", {}).values()
    texts += [(it.help or "").splitlines()[0] for it in inner if it.help and not it.hidden]
    for text in texts:
        assert " ".join((text or "").split()) in said


def test_there_are_brackets_in_some() -> None:
    texts = [
        it.help or ""
        for command in COMMANDS.values()
        for it in command.params
        if it.param_type_name != "option" and getattr(it, "help", None)
    ]
    assert any("[//path]" in it for it in texts)


MODULES: Final = (
    "dodona_gateway",
    "dodona_oracle",
    "dodona_tablets",
    "disk_faults",
    "dodona_loadtest.bench",
    "dodona_loadtest.load",
    "dodona_loadtest.kills",
    "dodona_loadtest.profile",
    "dodona_loadtest.verify",
    "negative",
    "simulator",
)


@pytest.mark.integration
@pytest.mark.parametrize("module", sample(MODULES, one_in=3, why="help of a program"))
def test_programs_beside_the_command_line_have_help_too(module: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", module, "--help"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "--help" in done.stdout
