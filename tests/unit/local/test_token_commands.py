"""`dodona tokens`: what it prints, where, and that it says no secret twice."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import dodona
from dodona_gateway.core.access.tokens import parse_token
from dodona_local import cli

SECONDS_OF_DAY = 24 * 3600
GRANTS = ["--grant", "write://home/bank/**", "--grant", "read:/"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "db"
    dodona.open(folder).close()
    return folder


def run(folder: Path, *words: str) -> Result:
    return CliRunner().invoke(cli.application, ["tokens", *words, "--data-dir", str(folder)])


def json_of(folder: Path, *words: str) -> Any:
    done = run(folder, *words, "--format", "json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_a_new_token_stands_alone_on_standard_output(folder: Path) -> None:
    made = run(folder, "create", "ada", *GRANTS, "--expires", "30d")
    assert made.exit_code == 0
    (text,) = made.stdout.splitlines()
    id = parse_token(text).id
    assert f"token {id} of ada allows write://home/bank/**, read://** until 2" in made.stderr
    assert text[-43:] not in made.stderr
    heading, line = run(folder, "list").stdout.splitlines()
    assert heading.split() == ["id", "name", "state", "created", "ends", "grants"]
    assert line.split()[:3] == [id, "ada", "valid"]
    assert line.split()[-2:] == ["write://home/bank/**", "read://**"]
    assert text[-43:] not in run(folder, "list").output


def test_programs_get_all_but_the_hash(folder: Path) -> None:
    made = json_of(folder, "create", "ada", *GRANTS, "--expires", "1d")
    text = made.pop("token")
    assert made["id"] == parse_token(text).id
    assert (made["name"], made["grants"]) == ("ada", ["write://home/bank/**", "read://**"])
    lived_us = made["expires_us"] - made["created_us"]
    assert 0 <= SECONDS_OF_DAY * 1_000_000 - lived_us < 60_000_000
    assert json_of(folder, "list") == [made]
    assert set(made) == {
        *("id", "name", "state", "grants", "created_us", "expires_us", "revoked_us"),
    }
    assert json_of(folder, "create", "bob", "--grant", "read:/")["expires_us"] is None


def test_the_token_commands_expire_and_revoke_a_token_by_its_id(folder: Path) -> None:
    id = json_of(folder, "create", "ada", *GRANTS)["id"]
    expired = run(folder, "expire", id, "12h")
    assert (expired.exit_code, expired.stderr) == (0, "")
    assert expired.stdout.startswith(f"token {id} of ada ends at 2")
    assert json_of(folder, "list")[0]["expires_us"] is not None
    revoked = run(folder, "revoke", id)
    assert (revoked.exit_code, revoked.stdout) == (0, f"token {id} of ada is revoked\n")
    assert json_of(folder, "list")[0]["state"] == "revoked"
    assert run(folder, "list").stdout.splitlines()[1].split()[2] == "revoked"


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["create", "ada"], 2, "--grant"),
        (
            ["create", "ada", "--grant", "own:/"],
            1,
            "dodona: A role must be one of read, write, admin",
        ),
        (["create", "ada", "--grant", "read:home"], 1, "dodona: The path does not begin with //"),
        (["create", "", *GRANTS], 1, "dodona: The name is empty"),
        (["create", "ada", *GRANTS, "--expires", "30"], 2, "a duration is a number and a unit"),
        (["create", "ada", *GRANTS, "--expires", "0d"], 2, "a duration is a number and a unit"),
        (["create", "ada", *GRANTS, "--expires", "36501d"], 2, "a duration is a number and"),
        (["revoke", "0123456789abcdef"], 1, "dodona: No token has this id"),
        (["expire", "0123456789abcdef", "1s"], 1, "dodona: No token has this id"),
        (["revoke", "ada"], 1, "dodona: A token's id is 16 hexadecimal digits"),
    ],
)
def test_an_invalid_token_command_reports_the_reason(
    folder: Path, words: list[str], code: int, said: str
) -> None:
    done = run(folder, *words)
    assert done.exit_code == code
    assert said in done.stderr


def test_a_token_given_instead_of_its_id_is_not_repeated_in_the_output(folder: Path) -> None:
    text = json_of(folder, "create", "ada", *GRANTS)["token"]
    for words in (["revoke", text], ["expire", text, "1h"], ["create", text, *GRANTS]):
        done = run(folder, *words)
        assert done.exit_code == 1
        assert text[-43:] not in done.output
