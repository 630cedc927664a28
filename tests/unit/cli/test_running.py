"""What all commands have in common: help, places, exit codes, and how they end early."""

import fcntl
import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, get_args

import pytest
import typer
from typer.testing import CliRunner

import dodona as dodona_client
from dodona.errors import ERRORS_BY_KIND, Action, CommitOutcomeUnknown, TransactionConflict
from dodona_local.cli import application
from dodona_local.cli.running import CODES_BY_ACTION, EXIT_CODES, Group
from suite.levels import share
from suite.programs import program
from suite.waiting import WAIT_S_MAX, wait_until
from unit.cli.commands import ACCOUNTS, TABLE, Commands, account, lines_of

COMMAND = (sys.executable, "-m", "dodona_local.cli")
SIGNALS = share([signal.SIGINT, signal.SIGTERM], one_in=2)


def test_every_error_has_an_exit_code_that_help_explains() -> None:
    assert set(CODES_BY_ACTION) == set(get_args(Action))
    assert {CODES_BY_ACTION[error.action] for error in ERRORS_BY_KIND.values()} <= set(EXIT_CODES)
    said = CliRunner().invoke(application, ["--help"]).stdout
    for code, text in EXIT_CODES.items():
        assert f"{code}: {text}" in said


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (TransactionConflict("lost", row=1), 3, "dodona: lost (row=1)\n"),
        (CommitOutcomeUnknown("who knows"), 4, "dodona: who knows\n"),
        (dodona_client.DataCorrupted("broken"), 1, "dodona: broken\n"),
        (dodona_client.Unavailable("silence"), 3, "dodona: silence\n"),
        (KeyboardInterrupt(), 130, ""),
        (KeyboardInterrupt("half of it"), 130, "dodona: half of it\n"),
    ],
)
def test_errors_become_a_sentence_and_a_code(error: BaseException, code: int, words: str) -> None:
    failing = typer.Typer(cls=Group)

    @failing.command()
    def fail() -> None:
        raise error

    @failing.callback()
    def options() -> None: ...

    done = CliRunner().invoke(failing, ["fail"])
    assert (done.exit_code, done.stderr, done.stdout) == (code, words, "")


def test_other_errors_are_not_hidden() -> None:
    failing = typer.Typer(cls=Group)

    @failing.command()
    def fail() -> None:
        raise ZeroDivisionError

    @failing.callback()
    def options() -> None: ...

    assert isinstance(CliRunner().invoke(failing, ["fail"]).exception, ZeroDivisionError)


@pytest.mark.parametrize("words", [["insert"], ["select", TABLE, "--limit", "0"], ["nonsense"]])
def test_a_wrong_command_line_is_2(words: list[str]) -> None:
    assert CliRunner().invoke(application, words).exit_code == 2


def test_the_place_may_be_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def connect(url: str) -> Any:
        asked.append(url)
        raise dodona_client.Unavailable("nobody is there")

    monkeypatch.setattr(dodona_client, "connect", connect)
    run = CliRunner().invoke
    assert run(application, ["list"], env={"DODONA_URL": "http://there"}).exit_code == 3
    run(application, ["list", "--url", "http://here"], env={"DODONA_URL": "http://there"})
    run(application, ["list"])
    assert asked == ["http://there", "http://here", "http://127.0.0.1:8500"]


def test_no_database_is_made_to_look_at_it(tmp_path: Path) -> None:
    commands = Commands(tmp_path / "nothing")
    words_of_commands = (
        "list",
        "select //t",
        "timestamp",
        "insert //t x.csv",
        "loads list",
        "tokens list",
    )
    for words in map(str.split, words_of_commands):
        assert "there is no embedded database in" in commands.refused(*words)
    assert list(tmp_path.iterdir()) == []


def test_completion_knows_the_commands(tmp_path: Path) -> None:
    environment = {**os.environ, "_DODONA_COMPLETE": "complete_bash"}
    environment |= {"COMP_WORDS": "dodona tim", "COMP_CWORD": "1"}
    code = "from dodona_local.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == ["timestamp"]
    assert "--install-completion" in CliRunner().invoke(application, ["--help"]).stdout


def test_importing_the_command_line_loads_no_heavy_module() -> None:
    heavy = "{'dodona', 'pyarrow', 'msgspec', 'httpx', 'duckdb', 'rich.progress'}"
    check = f"import sys, dodona_local.cli; sys.exit(str({heavy} & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", check], capture_output=True, text=True, check=False
    )
    assert done.stderr == "set()\n"


def test_fresh_timestamps_rise(dodona: Commands) -> None:
    dodona.said("mkdir", "//d")
    numbers = [int(line) for line in dodona.said("timestamp", "--count", 3).splitlines()]
    assert numbers == [numbers[0], numbers[0] + 1, numbers[0] + 2]
    (later,) = dodona.value("timestamp")
    assert later > numbers[-1]
    assert dodona.said("timestamp", "--format", "csv").startswith('"timestamp"\n')
    assert dodona.elsewhere("timestamp", "show", 1914382028950732800).startswith("2026-07-01T12:00")
    assert (
        dodona.elsewhere("timestamp", "at", "2026-07-01T14:00:00+02:00") == "1914382028950732800\n"
    )
    for words in (("show", "0"), ("at", "2026-07-01T14:00:00"), ("at", "noon")):
        assert CliRunner().invoke(application, ["timestamp", *words]).exit_code == 1


def test_commands_show_the_status_and_outcomes_of_an_embedded_database(bank: Commands) -> None:
    (status,) = bank.value("cluster", "status")
    assert (status["part"], status["state"], status["tablets"]) == ("embedded", "ready", 1)
    assert bank.value("transactions", "in-doubt") == []
    bank.said("insert", TABLE, "-", "--input-format", "json", stdin=lines_of([account(1)]))
    with dodona_client.open(bank.folder) as db, db.begin() as tx:
        tx.insert_rows(TABLE, [account(1)])
    known = bank.value("transactions", "outcome", tx.id)
    assert known == {"transaction": tx.id, "state": "committed", "timestamp": tx.commit_timestamp}
    with dodona_client.open(bank.folder) as db:
        started = db.generate_timestamp()
    assert "aborted" in bank.said("transactions", "outcome", started, "--settle")


def test_loads_are_printed_in_any_format(bank: Commands) -> None:
    bank.said(
        *("insert", TABLE, "-", "--input-format", "json", "--atomic"), stdin=lines_of([account(1)])
    )
    lines = bank.said("loads", "list", "--format", "csv").splitlines()
    assert lines[0].startswith('"load","state","tables"')
    assert f'"finished","[""{TABLE}""]"' in lines[1]
    load = bank.value("loads", "list")[0]["load"]
    said = bank.run("loads", "abort", load, "--format", "csv", code=1).stdout
    assert said.splitlines()[1].split(",")[::2] == [str(load), "1"]
    assert bank.run("loads", "recoveries", "--format", "arrow").stdout_bytes


# ---- processes


def environment_of(**others: str) -> dict[str, str]:
    return {**os.environ, "TERM": "xterm", **others}


@contextmanager
def process(folder: Path, *words: object, **streams: Any) -> "Iterator[subprocess.Popen[bytes]]":
    command = [*COMMAND, *map(str, words), "--data-dir", str(folder)]
    # What is started in the background of a shell ignores interrupts, and so do its children.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    with program(command, env=environment_of(), **streams) as running:
        signal.signal(signal.SIGINT, before)
        try:
            yield running
        finally:
            running.kill()


@pytest.mark.integration
@pytest.mark.part("a command and its signals")
@pytest.mark.parametrize("number", SIGNALS)
def test_an_interrupted_insert_reports_the_number_of_rows_written(
    bank: Commands, number: int
) -> None:
    """Batches that were committed stay; what had been read of the next is gone."""
    pipe = subprocess.PIPE
    words = ("insert", TABLE, "-", "--input-format", "json", "--batch-rows", 10)
    with process(bank.folder, *words, stdin=pipe, stderr=pipe, stdout=pipe) as running:
        assert running.stdin is not None
        rows = [account(it, name=f"row {it}") for it in range(26)]
        feed(running.stdin, rows[:25])
        wait_until(lambda: is_written(bank.folder, "row 0"))
        feed(running.stdin, rows[25:])  # it reads on once it has counted what it has written
        running.send_signal(number)
        said, complained = running.communicate(timeout=WAIT_S_MAX)
    assert (running.returncode, said) == (128 + number, b"")
    found = re.fullmatch(r"dodona: interrupted, with (\d+) rows written\n", complained.decode())
    assert found is not None, complained
    assert int(found[1]) == len(bank.rows())
    assert int(found[1]) in (10, 20)


QUERY_CPU_S = 4.0
LONG_QUERY = "select count(*) from range(100000000) a, range(100000000) b where a.range != 1"


@pytest.mark.integration
@pytest.mark.part("a command and its signals")
@pytest.mark.parametrize("number", SIGNALS)
def test_an_interrupted_query_prints_no_error(bank: Commands, number: int) -> None:
    """DuckDB has an error of its own for that, which is nobody's business."""
    pipe = subprocess.PIPE
    with process(bank.folder, "query", LONG_QUERY, stderr=pipe, stdout=pipe) as running:
        # More processor time than all that comes before the query.
        wait_until(lambda: cpu_seconds(running.pid) >= QUERY_CPU_S)
        running.send_signal(number)
        said, complained = running.communicate(timeout=WAIT_S_MAX)
    assert (running.returncode, said, complained) == (128 + number, b"", b"")
    assert bank.rows() == []


def cpu_seconds(pid: int) -> float:
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def is_written(folder: Path, text: str) -> bool:
    """Whether the folder's log has it."""
    return any(text.encode() in it.read_bytes() for it in folder.rglob("log/*.mdb"))


def feed(pipe: IO[bytes], rows: list[dict[str, Any]]) -> None:
    """Write rows, and wait until the other side has taken all of them."""
    pipe.write(lines_of(rows).encode())
    pipe.flush()
    waiting = array("i", [1])

    def is_taken() -> bool:
        fcntl.ioctl(pipe, termios.FIONREAD, waiting)
        return not waiting[0]

    wait_until(is_taken)


@pytest.mark.integration
@pytest.mark.part("a command and its signals")
def test_an_interrupted_load_leaves_nothing(bank: Commands) -> None:
    pipe = subprocess.PIPE
    words = ("insert", TABLE, "-", "--input-format", "json", "--atomic")
    with process(bank.folder, *words, stdin=pipe, stderr=pipe, stdout=pipe) as running:
        assert running.stdin is not None
        feed(running.stdin, [account(it) for it in range(25)])
        feed(running.stdin, [account(25)])  # it reads on once it has begun to load
        running.send_signal(signal.SIGINT)
        _, complained = running.communicate(timeout=WAIT_S_MAX)
    assert (running.returncode, complained.decode()) == (
        130,
        "dodona: interrupted, with 0 rows written\n",
    )
    assert bank.rows() == []
    assert [it["state"] for it in bank.value("loads", "list")] == ["aborted"]


@pytest.mark.integration
@pytest.mark.part("a command and its signals")
def test_a_bar_is_for_terminals(bank: Commands, tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text(lines_of([account(it) for it in range(10)]))
    with process(bank.folder, "insert", TABLE, file, stderr=subprocess.PIPE) as running:
        assert running.communicate(timeout=WAIT_S_MAX)[1] == b""
    ours, theirs = pty.openpty()
    with process(
        bank.folder, "insert", TABLE, file, stderr=theirs, stdout=subprocess.PIPE
    ) as running:
        os.close(theirs)
        shown = read_terminal(ours)
        assert running.stdout is not None
        said = running.stdout.read()
    assert "inserting" in shown
    assert b"inserting" not in said
    assert said.startswith(b"10 rows inserted")


def read_terminal(terminal: int) -> str:
    """All that is shown, until nobody writes there any more."""
    shown = b""
    while select.select([terminal], [], [], WAIT_S_MAX)[0]:
        try:
            read = os.read(terminal, 1 << 16)
        except OSError:
            break
        if not read:
            break
        shown += read
    os.close(terminal)
    return shown.decode()


def test_arrow_is_not_for_terminals(bank: Commands) -> None:
    ours, theirs = pty.openpty()
    with process(
        bank.folder, "select", TABLE, "--format", "arrow", stdout=theirs, stderr=theirs
    ) as it:
        os.close(theirs)
        assert "arrow is a binary format" in read_terminal(ours)
        assert it.wait(WAIT_S_MAX) == 2


def test_commands_create_fill_and_read_a_table_without_sql(dodona: Commands) -> None:
    """What the first minute of a user looks like."""
    dodona.said("create", TABLE, "--schema", ACCOUNTS)
    dodona.said("insert", TABLE, "-", "--input-format", "csv", stdin="id,name,balance\n1,ann,5\n")
    assert dodona.rows() == [{"id": 1, "name": "ann", "balance": 5}]
