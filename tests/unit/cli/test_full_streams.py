"""Answers of commands whose output finds no room, or is closed."""

from itertools import product

import pytest

from suite.levels import sample
from unit.cli.commands import TABLE, Commands, account, lines_of
from unit.cli.test_streams import CLOSED, FULL, in_shell

pytestmark = pytest.mark.integration

COMMANDS = (
    f"select {TABLE}",
    f"select {TABLE} --format arrow",
    f"query 'select * from [{TABLE}]' --format csv",
    f"get {TABLE}",
    "list // --format json",
    "tokens list --format json",
    "loads list",
)
CASES = [*product(COMMANDS, (("> /dev/full", FULL), (">&-", CLOSED)), ("", "1"))]


@pytest.mark.parametrize("case", sample(CASES, one_in=9, why="output that finds no room"))
def test_a_command_fails_if_its_output_is_full_or_closed(
    bank: Commands, case: tuple[str, tuple[str, str], str]
) -> None:
    command, (streams, words), unbuffered = case
    bank.said("insert", TABLE, "-", "--input-format", "json", stdin=lines_of([account(1)]))
    done = in_shell(bank.folder, command, streams, unbuffered)
    assert (done.returncode, done.stdout, done.stderr.decode()) == (5, b"", words)
