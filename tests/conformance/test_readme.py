"""The tables in this folder's README name tests that exist, and every behaviour once."""

import re
from collections.abc import Iterator
from pathlib import Path

FOLDER = Path(__file__).parent
BEHAVIOURS = 145


def _rows() -> Iterator[list[str]]:
    for line in (FOLDER / "README.md").read_text("utf-8").splitlines():
        if re.match(r"\| \w", line):
            yield [cell.strip() for cell in line.strip("|").split("|")]


def test_every_behaviour_is_tested_or_left_out_with_a_reason() -> None:
    numbered = [row[0] for row in _rows() if row[0][0].isdigit()]
    numbers = [int(number) for numbers in numbered for number in numbers.split(",")]
    assert sorted(numbers) == list(range(1, BEHAVIOURS + 1))


def test_the_tests_in_the_conformance_readme_exist() -> None:
    count = 0
    for row in _rows():
        if len(row) == 2:
            continue  # left out, and why
        first, *_, files, tests = row
        names = re.findall(r"`(\w+)`", tests)
        sources = [
            (FOLDER / f"test_{name}.py").read_text("utf-8") for name in files.split(", ") if names
        ]
        for name in names:
            count += 1
            assert any(f"def test_{name}(" in source for source in sources), (first, name)
    assert count > BEHAVIOURS
