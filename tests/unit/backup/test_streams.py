"""Many streams at once, their progress, and the commands that show it."""

import json
import threading
from pathlib import Path

import pytest

import dodona
from dodona.client import Client
from dodona_local.backup import back_up, restore
from dodona_local.backup.streams import Stop, Stopped, ranges_of, run_all
from dodona_local.cli import application
from suite.waiting import WAIT_S_MAX
from unit.backup.tables import Counting, make_plain


def test_progress_comes_to_what_was_said(db: Client, other: Client, folder: Path) -> None:
    make_plain(db, "//t", 100, pivot_keys=[[], [50]])
    counting = Counting()
    back_up(db, folder, progress=counting)
    assert counting.steps == {"saving": 100}
    counting = Counting()
    restore(other, folder, progress=counting)
    assert counting.steps == counting.totals
    assert list(counting.steps) == ["verifying", "loading", "counting"]


def test_the_first_error_ends_all_streams() -> None:
    ended: list[int] = []
    began = threading.Barrier(2)

    def do(job: int, stop: Stop) -> int:
        if job < 2:
            began.wait(WAIT_S_MAX)
        if job == 1:
            raise ZeroDivisionError
        try:
            stop.wait(WAIT_S_MAX)
        except Stopped:
            ended.append(job)
            raise
        return job

    with pytest.raises(ZeroDivisionError):
        run_all(do, range(100))
    assert 0 in ended
    assert len(ended) < 10, "most never began"


def test_results_are_in_the_order_of_the_jobs() -> None:
    assert run_all(lambda job, _: -job, range(50)) == [-it for it in range(50)]
    assert run_all(lambda job, _: job, []) == []


def test_ranges_meet_and_have_no_ends() -> None:
    assert ranges_of([()]) == [(None, None)]
    assert ranges_of([(), (1,), (2, "x")]) == [(None, (1,)), ((1,), (2, "x")), ((2, "x"), None)]


# ---- the command line


def call(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    status = 0
    try:
        application([str(it) for it in words], prog_name="dodona")
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 1
    said = capsys.readouterr()
    return status, said.out, said.err


def test_the_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, folder, other = tmp_path / "db", tmp_path / "backup", tmp_path / "other"
    with dodona.open(data) as db:
        make_plain(db, "//t")
        make_plain(db, "//u")
        at = db.generate_timestamp()
        db.insert_rows("//t", [{"k": 99, "v": 0}])
    status, out, err = call(capsys, "backup", folder, "//t", "--data-dir", data, "--timestamp", at)
    assert (status, err) == (0, "")
    assert out.startswith("1 table with 10 rows as of ")
    assert str(folder) in out
    assert json.loads((folder / "backup.json").read_text())["source"] == str(data)
    status, out, err = call(capsys, "restore", folder, "--data-dir", other)
    assert (status, err) == (0, "")
    assert out.startswith("1 table with 10 rows restored, as of ")
    status, out, err = call(capsys, "restore", folder, "--data-dir", other)
    assert (status, out) == (1, "")
    assert err.startswith("dodona: //t exists already")
    status, _, err = call(capsys, "backup", folder, "--data-dir", tmp_path / "none")
    assert (status, err) == (1, f"dodona: there is no embedded database in {tmp_path / 'none'}\n")
    status, _, err = call(capsys, "restore", tmp_path / "none", "--data-dir", other)
    assert status == 1
    assert "there is no backup at" in err
