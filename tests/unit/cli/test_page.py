"""The page of the command line names every command, no option that is not there, and all exit
codes."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import typer.main

from dodona_local.cli import application
from dodona_local.cli.running import EXIT_CODES

PAGE: Final = (Path(__file__).resolve().parents[3] / "docs" / "reference" / "cli.md").read_text()


def words_of(group: Any, before: str = "") -> Iterator[str]:
    for name, command in group.commands.items():
        words = f"{before}{name}"
        if hasattr(command, "commands"):
            yield from words_of(command, f"{words} ")
        else:
            yield words


def test_every_command_is_named() -> None:
    for words in words_of(typer.main.get_command(application)):
        assert re.search(rf"`[^`\n]*\b{words}\b", PAGE), words


def test_every_option_that_is_named_is_there() -> None:
    known = {
        option
        for words in words_of(typer.main.get_command(application))
        for option in options_of(words)
    }
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", PAGE))
    assert named - known <= {"--help", "--install-completion"}


def options_of(words: str) -> list[str]:
    command: Any = typer.main.get_command(application)
    groups = [command]
    for word in words.split():
        command = command.commands[word]
        groups.append(command)
    parameters = [it for group in groups for it in group.params]
    return [option for it in parameters for option in [*it.opts, *it.secondary_opts]]


def test_the_exit_codes_are_the_code_s() -> None:
    listed = re.findall(r"^\| (\d+) \| (.*) \|$", PAGE, re.MULTILINE)
    assert {int(code): text for code, text in listed} == EXIT_CODES
