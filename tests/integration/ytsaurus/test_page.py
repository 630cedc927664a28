"""The page about the client: its tables are the code's."""

import re
from pathlib import Path
from typing import Final

import msgspec
import pytest
from yt.wrapper.errors import create_response_error

from dodona.errors import ERRORS_BY_KIND
from dodona_ytsaurus.commands.api import COMMANDS
from dodona_ytsaurus.terms.errors import error_status, yt_error

pytestmark = pytest.mark.integration

PAGE: Final = (
    Path(__file__).resolve().parents[3] / "docs" / "reference" / "ytsaurus-client.md"
).read_text()
BY_STATUS: Final = {401: "YtTokenError", 500: "YtProxyUnavailable"}


def test_the_table_of_commands_is_the_code_s() -> None:
    (section,) = re.findall(r"## What works\n(.*?)\n\n\(", PAGE, re.DOTALL)
    assert set(re.findall(r"`([a-z_]+)`", section)) == set(COMMANDS)


@pytest.mark.parametrize("kind", sorted(ERRORS_BY_KIND))
def test_the_table_of_errors_is_the_code_s(kind: str) -> None:
    error = ERRORS_BY_KIND[kind]("x")
    told = msgspec.to_builtins(yt_error(error))
    name = BY_STATUS.get(error_status(error)) or type(create_response_error(told)).__name__
    assert f"| `{kind}` | {told['code']} | `{name}` |\n" in PAGE


def test_the_table_has_no_other_errors() -> None:
    assert set(re.findall(r"^\| `([a-z_]+)` \| \d+ \|", PAGE, re.MULTILINE)) == set(ERRORS_BY_KIND)
