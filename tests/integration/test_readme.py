"""The README is true: its example runs as written, and its transcript is what `up` prints."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

pytestmark = pytest.mark.integration

README: Final = (Path(__file__).resolve().parents[2] / "README.md").read_text()


def block(heading: str, language: str) -> str:
    """The first code block of that language under a heading."""
    section = README.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    found = re.search(rf"```{language}\n(.*?)```", section, re.DOTALL)
    assert found is not None
    return found[1]


def test_the_ten_lines_run_as_written(tmp_path: Path) -> None:
    code = block("Ten lines", "python")
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert re.fullmatch(r"\[\{'id': 2, 'balance': 130\}\] since \d{19}\n", ended.stdout)
    assert (tmp_path / "bank").is_dir()


def test_the_commands_that_it_names_exist() -> None:
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
    lines = re.findall(r"^\$ \S*dodona up (.*)|# dodona up (.*?);", README, re.MULTILINE)
    options = {option for line in lines for option in re.findall(r"--[a-z-]+", " ".join(line))}
    assert {"--data-dir", "--insecure"} <= options
    for option in options:
        assert option in listing.stdout
