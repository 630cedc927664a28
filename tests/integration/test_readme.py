"""The commands and options that the README names in passing exist; its blocks run with those of all
other pages."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

pytestmark = pytest.mark.integration

README: Final = (Path(__file__).resolve().parents[2] / "README.md").read_text()


def test_the_commands_in_the_readme_exist() -> None:
    makefile = (Path(__file__).resolve().parents[2] / "Makefile").read_text()
    for target in re.findall(r"\$ make (\w+)", README):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE)
    listing = subprocess.run(
        [sys.executable, "-m", "dodona_local.cli", "up", "--help"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    lines = re.findall(r"^\$ \S*dodona up (.*)", README, re.MULTILINE)
    options = {option for line in lines for option in re.findall(r"--[a-z-]+", line)}
    assert {"--data-dir", "--nodes"} <= options
    for option in options:
        assert option in listing.stdout
