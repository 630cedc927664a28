"""`dodona lease`: one owner at a time, in words of a shell."""

import json
from pathlib import Path
from typing import Any

import pytest

import dodona as dodona_client
from dodona._core import named_leases
from dodona._core.writing import lease as form_of_leases
from dodona_local.cli import leases
from unit.cli.commands import Commands

PATH = "//leases"
LEASE = (PATH, "nightly")
ANN = ("--owner", "ann")
BOB = ("--owner", "bob")


@pytest.fixture
def table(dodona: Commands) -> Commands:
    assert dodona.said("lease", "create-table", PATH) == ""
    return dodona


def acquire(table: Commands, *words: object) -> Any:
    return table.value("lease", "acquire", *LEASE, *words)


def test_a_lease_is_acquired_renewed_released_and_shown(table: Commands) -> None:
    lease = {"table": PATH, "name": "nightly", "owner": "ann", "epoch": 1}
    assert acquire(table, *ANN) == lease
    before = table.value("lease", "show", *LEASE)
    assert before == {**lease, "expires": before["expires"], "state": "held"}
    assert table.said("lease", "renew", *LEASE, *ANN, "--epoch", 1, "--lease-ms", 3_600_000) == ""
    after = table.value("lease", "show", *LEASE)
    assert after["expires"] > before["expires"]
    assert table.said("lease", "release", *LEASE, *ANN, "--epoch", 1) == ""
    shown = {**lease, "owner": None, "expires": 0, "state": "released"}
    assert table.value("lease", "show", *LEASE) == shown
    assert acquire(table, *BOB)["epoch"] == 2


def test_a_lease_that_another_owner_has_asks_to_run_the_command_again(table: Commands) -> None:
    acquire(table, *ANN)
    said = table.refused("lease", "acquire", *LEASE, *BOB, code=3)
    assert "belongs to 'ann'" in said


def test_a_lost_lease_is_neither_renewed_nor_released(table: Commands) -> None:
    acquire(table, *ANN)
    table.said("lease", "release", *LEASE, *ANN, "--epoch", 1)
    acquire(table, *BOB)
    for command in ("renew", "release"):
        said = table.refused("lease", command, *LEASE, *ANN, "--epoch", 1)
        assert "found={'owner': 'bob', 'epoch': 2}" in said
    assert table.value("lease", "show", *LEASE)["owner"] == "bob"


def test_a_lease_that_has_expired_is_shown_so(table: Commands) -> None:
    acquire(table, *ANN, "--lease-ms", 1)
    with dodona_client.open(table.folder) as db:
        expires = db.lookup_rows(PATH, [{"name": "nightly"}])[0]["expires"]
        while db.generate_timestamp() <= expires:
            """Time passes by itself."""
    assert table.value("lease", "show", *LEASE)["state"] == "expired"
    assert acquire(table, *BOB)["epoch"] == 2


def test_a_lease_is_printed_as_a_table(table: Commands) -> None:
    heading, row = table.said("lease", "acquire", *LEASE, *ANN).splitlines()
    assert heading.split() == ["table", "name", "owner", "epoch"]
    assert row.split() == [PATH, "nightly", "ann", "1"]


def test_what_is_not_there_is_named(table: Commands, tmp_path: Path) -> None:
    assert "There is no lease 'nightly' yet" in table.refused("lease", "show", *LEASE)
    assert "//nope" in table.refused("lease", "acquire", "//nope", "x", *ANN)
    said = table.refused("lease", "renew", *LEASE, *ANN, "--epoch", 1)
    assert "is absent" in said
    elsewhere = Commands(tmp_path / "nowhere")
    assert "no embedded database" in elsewhere.refused("lease", "acquire", *LEASE, *ANN)
    table.said("create", "//other", "--schema", "id:int64:key,v:int64")
    table.refused("lease", "create-table", "//other")
    table.refused("lease", "show", "//other", "x")


def test_an_owner_and_an_epoch_are_needed(table: Commands) -> None:
    for words in (["acquire"], ["renew", *ANN], ["release", "--epoch", 1]):
        done = table.run("lease", words[0], *LEASE, *words[1:], code=2)
        assert "Missing option" in done.stderr
    for words in (["renew", "--epoch", 0], ["acquire", "--lease-ms", 0]):
        table.run("lease", words[0], *LEASE, *ANN, *words[1:], code=2)


def test_a_table_of_leases_may_exist(table: Commands) -> None:
    acquire(table, *ANN)
    table.said("lease", "create-table", PATH)
    assert json.loads(table.said("lease", "show", *LEASE, "--format", "json"))["owner"] == "ann"


def test_the_limits_are_those_of_the_client() -> None:
    assert leases.LEASE_MS == named_leases.LEASE_MS
    assert leases.LEASE_MS_MAX == named_leases.LEASE_MS_MAX
    assert leases.EPOCH_MAX == form_of_leases.EPOCH_MAX
