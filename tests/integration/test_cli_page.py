"""docs/cli.md is true: its blocks run as written against a cluster and say what it says."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import typer.main

from dodona_local.cli import application
from dodona_local.cli.running import EXIT_CODES
from dodona_local.launcher import LocalCluster

pytestmark = pytest.mark.integration

PAGE: Final = (Path(__file__).resolve().parents[2] / "docs" / "cli.md").read_text()
MARK: Final = "--- the next command"
NUMBER: Final = re.compile(r"\d{17,}")


def blocks() -> Iterator[tuple[str, str]]:
    """Each command of the page, and what it says."""
    for block in re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL):
        for command in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            line, _, said = command.partition("\n")
            yield line, said


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    """One of its own: the tables on the page are those of other pages, too."""
    with LocalCluster(tmp_path / "data") as running:
        yield running


def test_the_page_says_what_the_commands_say(cluster: LocalCluster, tmp_path: Path) -> None:
    commands, said = zip(*blocks(), strict=True)
    script = [f'dodona() {{ {sys.executable} -m dodona_local.cli "$@"; }}', "set -e"]
    for command in commands:
        script += [command, f"echo '{MARK}'"]
    done = subprocess.run(
        ["bash", "-c", "\n".join(script)],
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", "DODONA_URL": cluster.master_url, **python_path()},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=200,
        check=False,
    )
    found = done.stdout.split(f"{MARK}\n")
    for command, expected, printed in zip(commands, said, found, strict=False):
        assert NUMBER.sub("N", printed) == NUMBER.sub("N", expected), command
    assert done.returncode == 0
    assert len(found) == len(commands) + 1


def python_path() -> dict[str, str]:
    return {"PYTHONPATH": ":".join(it for it in sys.path if it)}


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
