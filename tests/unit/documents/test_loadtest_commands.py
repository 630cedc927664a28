"""The commands of loadtest/README.md, which no harness runs, as they take minutes: each is one that
its program takes."""

import argparse
import importlib
import re
import shlex
from typing import Any, Final

import pytest

from documents.blocks import ROOT
from dodona_loadtest.swarm.options import add_options

PAGE: Final = ROOT / "loadtest" / "README.md"
LOAD: Final = "dodona_loadtest.load"
MAKEFILE: Final = (ROOT / "Makefile").read_text("utf-8")


class ParsedError(Exception):
    """Nothing is wrong: the arguments were taken, but for these, and no more has to be done."""


def commands() -> list[str]:
    """Those that are indented, without what they are said to do, and what may be left out."""
    text = PAGE.read_text("utf-8").replace("\\\n", " ")
    lines = re.findall(r"^    ((?:make|python|locust) .*)$", text, re.MULTILINE)
    return [re.sub(r"\s+#.*|\[[^]]*\]", "", it) for it in lines]


def module_and_words(line: str) -> tuple[str, list[str]]:
    """What a line runs. Raises ValueError if `make` has no such target."""
    program, *words = shlex.split(line)
    if program == "python":
        assert words[0] == "-m"
        return words[1], words[2:]
    target, *others = words
    given = "".join(others)
    assert given.partition("=")[0] in ("", "ARGS")
    recipe = re.search(rf"^{target}:.*\n\t\$\(BIN\)/python -m (\S+) (.*)$", MAKEFILE, re.MULTILINE)
    if recipe is None:
        raise ValueError(line)
    return recipe[1], shlex.split(recipe[2].replace("$(ARGS)", given.partition("=")[2]))


@pytest.mark.parametrize("line", [it for it in commands() if not it.startswith("locust")])
def test_the_program_accepts_each_loadtest_command(
    line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    parse = argparse.ArgumentParser.parse_known_args

    def parse_and_stop(parser: Any, *asked: Any, **others: Any) -> Any:
        _, unknown = parse(parser, *asked, **others)
        raise ParsedError(unknown)

    monkeypatch.setattr(argparse.ArgumentParser, "parse_known_args", parse_and_stop)
    name, words = module_and_words(line)
    swarm = argparse.ArgumentParser()
    add_options(swarm)
    with pytest.raises(ParsedError) as taken:
        importlib.import_module(name).main(words)
    (unknown,) = taken.value.args
    assert not unknown or name == LOAD, "it hands the rest on"
    assert parse(swarm, unknown)[1] == []


def test_the_loadtest_page_has_commands_and_their_files_exist() -> None:
    assert len(commands()) > 12
    for line in commands():
        for path in re.findall(r"-f (\S+\.py)", line):
            assert (ROOT / path).is_file()


def test_a_wrong_option_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AssertionError):
        test_the_program_accepts_each_loadtest_command(
            "python -m dodona_loadtest.kills --seeds-of-old 3", monkeypatch
        )
    with pytest.raises(ValueError, match="make nothing"):
        module_and_words("make nothing")
