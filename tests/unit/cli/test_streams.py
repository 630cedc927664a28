"""Standard streams as programs and shells give them: full, closed, unbuffered, impatient, ASCII.

Reports of the same kind elsewhere: aws/aws-cli #6461, iterative/dvc #5591.
"""

import asyncio
import fcntl
import json
import os
import shlex
import signal
import subprocess
import sys
import termios
import threading
import time
from array import array
from contextlib import AbstractContextManager, suppress
from io import BufferedWriter
from pathlib import Path
from typing import IO, Any

import pytest
from typer.testing import CliRunner

from dodona.errors import Unavailable
from dodona_gateway.core.access.tokens import parse_token
from dodona_gateway.shell.tokens import TokenStore
from dodona_local.cli import application
from dodona_local.cli.streams import Output
from suite.levels import share
from suite.programs import program
from suite.waiting import WAIT_S_MAX, wait_until
from unit.cli.commands import ACCOUNTS, TABLE, Commands, account, lines_of
from unit.descriptors import only

pytestmark = [pytest.mark.integration, pytest.mark.part("standard streams of a command")]

CREATE = "tokens create ada --grant read:/"
JSON = ("--format", "json")
COMMAND = (sys.executable, "-m", "dodona_local.cli")
PIPE_BYTES = 1 << 16
FULL = "dodona: not all output is written: standard output: No space left on device\n"
CLOSED = "dodona: not all output is written: standard output: Bad file descriptor\n"

BUFFERING = pytest.mark.parametrize("unbuffered", share(["", "1"], one_in=2))
"""With 1, as in most containers, Python's own streams write what there is room for and no more."""


def environment_of(**others: str) -> dict[str, str]:
    return {**os.environ, "TERM": "xterm", **others}


def started(
    folder: Path, *words: object, **others: Any
) -> AbstractContextManager["subprocess.Popen[bytes]"]:
    command = [*COMMAND, *map(str, words), "--data-dir", str(folder)]
    return program(command, **others)


def in_shell(
    folder: Path, words: str, streams: str, unbuffered: str = "", **others: Any
) -> "subprocess.CompletedProcess[bytes]":
    """With the streams as a shell spells them."""
    line = f"{shlex.join(COMMAND)} {words} --data-dir {shlex.quote(str(folder))} {streams}"
    environment = environment_of(PYTHONUNBUFFERED=unbuffered)
    return subprocess.run(
        ["bash", "-c", line],
        env=environment,
        capture_output=True,
        timeout=WAIT_S_MAX,
        check=False,
        **others,
    )


def count_in(pipe: IO[bytes]) -> int:
    """Bytes that nobody has read."""
    count = array("i", [0])
    fcntl.ioctl(pipe, termios.FIONREAD, count)
    return count[0]


def fill(bank: Commands) -> list[dict[str, Any]]:
    """More than a pipe holds."""
    rows = [account(number, name="x" * 1000) for number in range(1000, 3000)]
    bank.said("insert", TABLE, "-", "--input-format", "json", stdin=lines_of(rows))
    return rows


@BUFFERING
def test_a_closed_pipe_is_quiet(bank: Commands, unbuffered: str) -> None:
    fill(bank)
    environment = environment_of(PYTHONUNBUFFERED=unbuffered)
    pipe = subprocess.PIPE
    words = ("select", TABLE)
    with started(bank.folder, *words, env=environment, stdout=pipe, stderr=pipe) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        written = running.stdout
        wait_until(lambda: count_in(written) >= PIPE_BYTES // 2)  # it stands amid a write
        assert os.read(running.stdout.fileno(), 10) == b"  id  name"
        running.stdout.close()
        assert running.stderr.read() == b""
        assert running.wait(WAIT_S_MAX) == 141


@BUFFERING
@pytest.mark.parametrize(
    "words", share([("select", TABLE), ("query", f"select * from [{TABLE}]")], one_in=2)
)
def test_an_interrupt_waits_for_no_reader(
    bank: Commands, words: tuple[str, ...], unbuffered: str
) -> None:
    fill(bank)
    environment = environment_of(PYTHONUNBUFFERED=unbuffered)
    pipe = subprocess.PIPE
    with started(bank.folder, *words, env=environment, stdout=pipe, stderr=pipe) as running:
        assert running.stdout is not None
        written = running.stdout
        wait_until(lambda: count_in(written) >= PIPE_BYTES // 2)  # it stands amid a write
        running.send_signal(signal.SIGINT)
        assert running.wait(WAIT_S_MAX) == 130
        assert running.stderr is not None
        assert running.stderr.read() == b""
        assert written.read().startswith(b"  id  name")


def test_an_interrupt_during_the_final_output_waits_for_no_reader(bank: Commands) -> None:
    """Of a command that says little: all of it is written at the end."""
    ours, theirs = full_pipe()
    with started(bank.folder, "list", "//", stdout=theirs) as running:
        os.close(theirs)
        wait_until(lambda: waits_for_a_stream(running.pid))
        running.send_signal(signal.SIGINT)
        assert running.wait(WAIT_S_MAX) == 130
    os.close(ours)


def waits_for_a_stream(pid: int) -> bool:
    """Its main thread, in select: nothing else that it does waits there."""
    where = Path(f"/proc/{pid}/wchan").read_text()
    return "select" in where or "poll" in where


def test_a_signal_that_ends_nothing_loses_nothing() -> None:
    """It comes again and again while the command waits for its reader, who comes late."""
    ours, theirs = full_pipe()
    content = bytes(range(256)) * 1000
    before, told = signal.signal(signal.SIGUSR1, lambda *_: None), wakeup_fd()
    read: list[bytes] = []

    def disturb_and_read() -> None:
        for _ in range(100):
            os.kill(os.getpid(), signal.SIGUSR1)
            time.sleep(0.001)
        while piece := os.read(ours, PIPE_BYTES):
            read.append(piece)

    reader = threading.Thread(target=disturb_and_read)
    reader.start()
    try:
        with BufferedWriter(Output(theirs, "wb")) as output:
            output.write(content)
    finally:
        reader.join()
        signal.signal(signal.SIGUSR1, before)
        os.close(ours)
    assert b"".join(read).lstrip(b"x") == content
    assert wakeup_fd() == told


def test_an_event_loop_receives_a_signal_that_came_during_a_blocked_write() -> None:
    """As `dodona up`, whose words find no room: Ctrl-C is its loop's to handle."""
    ours, theirs = full_pipe()

    def disturb_and_read() -> None:
        time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGUSR1)
        time.sleep(0.05)
        while os.read(ours, PIPE_BYTES):
            pass

    async def run() -> None:
        heard = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, heard.set)
        reader = threading.Thread(target=disturb_and_read)
        reader.start()
        with BufferedWriter(Output(theirs, "wb")) as output:
            output.write(b"words")
        reader.join()
        await asyncio.wait_for(heard.wait(), WAIT_S_MAX)

    asyncio.run(run())
    os.close(ours)


def test_output_waits_for_its_reader_when_no_file_descriptor_is_free() -> None:
    ours, theirs = full_pipe()
    read: list[bytes] = []

    def read_late() -> None:
        wait_until(lambda: waits_for_a_stream(os.getpid()))
        while piece := os.read(ours, PIPE_BYTES):
            read.append(piece)

    reader = threading.Thread(target=read_late)
    with only(1):  # to look at what the main thread waits for
        reader.start()
        with BufferedWriter(Output(theirs, "wb")) as output:
            output.write(b"words")
    reader.join()
    os.close(ours)
    assert b"".join(read).lstrip(b"x") == b"words"


def test_output_after_dropped_output_is_dropped() -> None:
    ours, theirs = full_pipe()
    with Output(theirs, "wb") as output:
        output.waits = False
        assert output.write(b"first") == 5
        os.read(ours, PIPE_BYTES)
        assert output.write(b"second") == 6
    assert os.read(ours, PIPE_BYTES).strip(b"x") == b""
    os.close(ours)


def test_an_interrupt_while_python_flushes_at_exit_prints_no_error() -> None:
    """Those that Python writes when the command has ended already."""
    ours, theirs = full_pipe()
    pipe = subprocess.PIPE
    with program([*COMMAND, "--version"], stdout=theirs, stderr=pipe) as running:
        os.close(theirs)
        wait_until(lambda: waits_for_a_stream(running.pid))
        running.send_signal(signal.SIGINT)
        assert running.wait(WAIT_S_MAX) == 130
        assert running.stderr is not None
        assert running.stderr.read() == b""
    os.close(ours)


def wakeup_fd() -> int:
    number = signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(number)
    return number


def full_pipe() -> tuple[int, int]:
    """What reads and what writes it."""
    ours, theirs = os.pipe()
    os.set_blocking(theirs, False)
    with suppress(BlockingIOError):
        while True:
            os.write(theirs, b"x" * 512)
    os.set_blocking(theirs, True)
    return ours, theirs


@BUFFERING
@pytest.mark.parametrize("form", share(["json", "csv"], one_in=2))
def test_a_pipe_that_does_not_wait_gets_everything(
    bank: Commands, form: str, unbuffered: str
) -> None:
    """As one that Node.js made: who writes more than there is room for is told to come again."""
    rows = fill(bank)
    ours, theirs = os.pipe()
    os.set_blocking(theirs, False)
    words = ("select", TABLE, "--format", form)
    environment = environment_of(PYTHONUNBUFFERED=unbuffered)
    with started(bank.folder, *words, env=environment, stdout=theirs) as running:
        os.close(theirs)
        with open(ours, "rb") as answer:
            lines = answer.read().decode().splitlines()
        assert running.wait(WAIT_S_MAX) == 0
    if form == "json":
        assert [json.loads(line) for line in lines] == rows
    else:
        assert len(lines) == len(rows) + 1


@BUFFERING
@pytest.mark.parametrize(("streams", "words"), [("> /dev/full", FULL), (">&-", CLOSED)])
def test_a_change_is_kept_when_the_command_cannot_write_its_output(
    bank: Commands, streams: str, words: str, unbuffered: str
) -> None:
    command = f"insert {TABLE} - --input-format json {streams}"
    given = lines_of([account(1)]).encode()
    done = in_shell(bank.folder, command, streams, unbuffered, input=given)
    assert (done.returncode, done.stderr.decode()) == (5, words)
    assert bank.rows() == [account(1)]
    done = in_shell(bank.folder, f"create //a --schema {ACCOUNTS}", streams, unbuffered)
    assert (done.returncode, done.stderr.decode()) in ((5, words), (0, ""))  # it has nothing to say
    assert bank.said("exists", "//a") == "true\n"


def states_of_tokens(bank: Commands) -> list[tuple[str, str]]:
    return [(it["name"], it["state"]) for it in json.loads(bank.said("tokens", "list", *JSON))]


@BUFFERING
@pytest.mark.parametrize("form", share(["", " --format json"], one_in=2))
@pytest.mark.parametrize(("streams", "words"), [("> /dev/full", FULL), (">&-", CLOSED)])
def test_a_token_that_can_not_be_shown_allows_nothing(
    bank: Commands, streams: str, words: str, form: str, unbuffered: str
) -> None:
    done = in_shell(bank.folder, CREATE + form, streams, unbuffered)
    assert (done.returncode, done.stdout) == (1, b"")
    told = done.stderr.decode()
    (token,) = json.loads(bank.said("tokens", "list", *JSON))
    assert f"dodona: token {token['id']} of ada could not be shown, so it is revoked" in told
    assert told.endswith(words)
    assert states_of_tokens(bank) == [("ada", "revoked")]


@BUFFERING
def test_a_new_token_is_revoked_if_the_reader_of_the_output_is_gone(
    bank: Commands, unbuffered: str
) -> None:
    ours, theirs = os.pipe()
    os.close(ours)
    environment = environment_of(PYTHONUNBUFFERED=unbuffered)
    pipe = subprocess.PIPE
    words = shlex.split(CREATE)
    with started(bank.folder, *words, env=environment, stdout=theirs, stderr=pipe) as running:
        os.close(theirs)
        assert running.stderr is not None
        assert b" of ada could not be shown, so it is revoked" in running.stderr.read()
        assert running.wait(WAIT_S_MAX) == 141
    assert states_of_tokens(bank) == [("ada", "revoked")]


def test_a_new_token_is_revoked_if_an_interrupt_comes_before_its_output(bank: Commands) -> None:
    """Standard output is a pipe that is full, and nobody reads."""
    ours, theirs = full_pipe()
    pipe = subprocess.PIPE
    with started(bank.folder, *shlex.split(CREATE), stdout=theirs, stderr=pipe) as running:
        os.close(theirs)
        assert running.stderr is not None
        about = running.stderr.readline()  # its text is written next
        assert b"it is not shown again" in about
        running.send_signal(signal.SIGINT)
        assert b" of ada could not be shown, so it is revoked" in running.stderr.read()
        assert running.wait(WAIT_S_MAX) == 130
    os.close(ours)
    assert states_of_tokens(bank) == [("ada", "revoked")]


def test_a_token_that_can_be_neither_shown_nor_revoked_is_named(
    bank: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def planted(self: TokenStore, id: str) -> None:
        raise Unavailable("the master is away")

    monkeypatch.setattr(TokenStore, "revoke", planted)
    monkeypatch.setattr("dodona_local.cli.tokens.output_failure", lambda: OSError("planted"))
    done = CliRunner().invoke(application, [*shlex.split(CREATE), "--data-dir", str(bank.folder)])
    (token,) = json.loads(bank.said("tokens", "list", *JSON))
    assert (done.exit_code, token["state"]) == (1, "valid")
    assert f"revoke it: dodona tokens revoke {token['id']} (the master is away)" in done.stderr


def test_a_token_is_shown_where_standard_error_is_not(bank: Commands) -> None:
    done = in_shell(bank.folder, CREATE, "2> /dev/full")
    assert done.returncode == 0
    assert parse_token(done.stdout.decode().strip())
    assert states_of_tokens(bank) == [("ada", "valid")]


def test_an_error_keeps_its_exit_code_when_stderr_cannot_be_written(bank: Commands) -> None:
    done = in_shell(bank.folder, "get //nowhere", "> /dev/full 2> /dev/full")
    assert (done.returncode, done.stdout, done.stderr) == (1, b"", b"")


@pytest.mark.parametrize("streams", share(["2> /dev/full", "2>&-", "2> >(true)"], one_in=2))
def test_standard_error_fails_nothing(bank: Commands, streams: str, tmp_path: Path) -> None:
    """With progress, which is shown there."""
    file = tmp_path / "rows.json"
    rows = [account(number) for number in range(2000)]
    file.write_text(lines_of(rows))
    done = in_shell(bank.folder, f"insert {TABLE} {file}", streams)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.startswith(b"2,000 rows inserted")
    assert bank.rows() == rows


def test_a_command_that_needs_a_closed_standard_input_reports_an_error(bank: Commands) -> None:
    words = b"dodona: standard input can't be read: Bad file descriptor"
    for command in (f"insert {TABLE} - --input-format json", "query -"):
        done = in_shell(bank.folder, command, "<&-")
        assert (done.returncode, done.stdout, done.stderr.count(b"\n")) == (1, b"", 1)
        assert done.stderr.startswith(words)
    done = in_shell(bank.folder, f"select {TABLE}", "<&-")
    assert (done.returncode, done.stderr) == (0, b"")


def test_no_file_takes_the_place_of_a_closed_stream(bank: Commands) -> None:
    """What is printed would end up in the database."""
    command = f"insert {TABLE} - --input-format json"
    for streams in (">&- 2>&-", "<&- >&- 2>&-"):
        in_shell(bank.folder, command, streams, input=lines_of([account(1)]).encode())
    assert bank.rows() == [account(1)]
    checked = bank.elsewhere("check", bank.folder)
    assert checked.count("  sound  ") == len(checked.splitlines()) - 1


def test_a_query_that_is_not_utf_8_is_refused_with_the_place_of_the_bad_byte(
    bank: Commands,
) -> None:
    done = in_shell(bank.folder, "query -", "", input=b"select '\xff'")
    words = "dodona: standard input is not UTF-8 text: see byte 8\n"
    assert (done.returncode, done.stdout, done.stderr.decode()) == (1, b"", words)


def test_a_stream_of_few_letters_shows_the_others_by_escapes(
    bank: Commands, tmp_path: Path
) -> None:
    """Rows are UTF-8, whatever the stream says of itself."""
    row = account(1, name="ü")
    bank.said("insert", TABLE, "-", "--input-format", "json", stdin=lines_of([row]))
    environment = environment_of(PYTHONIOENCODING="ascii")

    def said(*words: object) -> bytes:
        command = [*COMMAND, *map(str, words), "--data-dir", str(bank.folder)]
        return subprocess.run(command, env=environment, capture_output=True, check=True).stdout

    assert said("export", TABLE, tmp_path / "ü.csv").endswith(rb"/\xfc.csv" + b"\n")
    assert json.loads(said("select", TABLE, "--format", "json")) == row
