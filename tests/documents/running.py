"""Runs the blocks of a page, in order, in the working folder, and complains where one does not do
what the page says.

Owns: the comparison of what is said with what was printed. Timestamps are all alike there, and
`...` stands for anything. Addresses on the page are those of a cluster that was started by hand:
they are replaced by the real ones. `python -m documents.running` runs a page in a process of its
own, as told by a `Job` in JSON on standard input.
"""

import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any, Final, Self

from documents.blocks import ROOT, Block, Command, blocks_of, commands_of

MARK: Final = "--- the next command"
UNLIKE: Final = re.compile(
    r"\d{17,}"  # timestamps, ids of transactions and loads
    r"|\b[0-9a-f]{16}\b"  # ids of tokens
    r"|\d{4}-\d\d-\d\d(?: \d\d:\d\d:\d\dZ|T\d\d:\d\d:\d\d\.\d+\+00:00)"  # times of the day
)
"""What differs each time."""
URL: Final = re.compile(r"http://127\.0\.0\.1:(\d+)")
ADDRESSES: Final = ("127.0.0.1:{}", "--port {}")
MASTER_URL: Final = "http://127.0.0.1:8500"
STOP_WAIT_S_MAX: Final = 60.0


class NotAsWritten(AssertionError):
    """A block did something else than its page says."""


@dataclass(frozen=True, slots=True)
class Job:
    """What to run: these blocks of a page, by their lines; `before` is Python that runs first."""

    page: str
    lines: list[int]
    addresses: dict[str, str] = field(default_factory=dict)
    """By what the page has in their place."""
    before: str = ""
    skipped: list[str] = field(default_factory=list)
    """Commands that are shown only."""

    @property
    def blocks(self) -> list[Block]:
        return [it for it in blocks_of(self.page) if it.line in self.lines]

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        return cls(**json.loads(text))


def addresses_of(written: int, real: int) -> dict[str, str]:
    """What stands for a port on a page, and what it is really."""
    return {it.format(written): it.format(real) for it in ADDRESSES}


class Shell:
    """One bash for all commands of a page, so that variables and background jobs stay."""

    def __init__(self) -> None:
        self._bash = subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, command: str) -> tuple[int, str]:
        """Its status, and all that it printed."""
        stdin, stdout = _ends(self._bash)
        stdin.write(f"{{ {command}\n}} </dev/null; printf '%s %s\\n' '{MARK}' \"$?\"\n")
        stdin.flush()
        printed = ""
        for line in stdout:
            text, is_end, status = line.partition(MARK)
            printed += text
            if is_end:
                return int(status), printed
        return self._bash.wait(), printed

    def close(self) -> None:
        stdin, stdout = _ends(self._bash)
        stdin.close()
        self._bash.wait(STOP_WAIT_S_MAX)
        stdout.close()


def _ends(process: "subprocess.Popen[str]") -> tuple[IO[str], IO[str]]:
    assert process.stdin is not None
    assert process.stdout is not None
    return process.stdin, process.stdout


class PageRun:
    """A page under way: the names that its Python has, its shell, the clusters it has started."""

    def __init__(self, addresses: dict[str, str], names: dict[str, Any] | None = None) -> None:
        self.names = {"__name__": "__main__", **(names or {})}
        self._addresses = dict(addresses)
        self._shell: Shell | None = None
        self._clusters: list[subprocess.Popen[str]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for cluster in self._clusters:
            stdin, stdout = _ends(cluster)
            cluster.terminate()
            stdin.close()
            stdout.read()
            cluster.wait(STOP_WAIT_S_MAX)
            stdout.close()
        if self._shell is not None:
            self._shell.close()

    def run(self, blocks: Sequence[Block], skipped: Sequence[str] = ()) -> None:
        """All of them. Raises NotAsWritten, and whatever their Python raises."""
        for block, after in zip(blocks, [*blocks[1:], None], strict=True):
            if block.language == "python":
                said = after.text if after is not None and after.language == "output" else ""
                self._run_python(block, said)
            elif block.language == "console":
                self._run_console(block, skipped)

    def execute(self, code: str, file: str = "before", line: int = 0) -> str:
        """What it prints. Errors name the page's lines."""
        printed = io.StringIO()
        with redirect_stdout(printed):
            exec(compile("\n" * line + self._to_real(code), file, "exec"), self.names)
        return printed.getvalue()

    def _run_at(self, block: Block) -> str:
        return self.execute(block.text, str(ROOT / block.page), block.line)

    def _run_python(self, block: Block, said: str) -> None:
        if block.file_name is not None:
            Path(block.file_name).write_text(self._to_real(block.text), "utf-8")
        else:
            self._compare(block.place, said, self._run_at(block))

    def _run_console(self, block: Block, skipped: Sequence[str]) -> None:
        commands = commands_of(block)
        is_answered = any(it.answer for it in commands)
        for command in commands:
            if any(command.text.startswith(it) for it in skipped):
                continue
            if re.match(r"(\S*/)?dodona up ", command.text):
                self._start_cluster(block, command)
                continue
            status, printed = self._bash().run(self._to_real(command.text))
            if status:
                raise NotAsWritten(f"{block.place}: {command.text}\nstatus {status}: {printed}")
            if is_answered:
                self._compare(f"{block.place}: {command.text}", command.answer, printed)

    def _start_cluster(self, block: Block, command: Command) -> None:
        """In the background, on free ports, which count for those that the page shows."""
        words = [sys.executable, "-m", "dodona_local.cli", *command.text.split()[1:]]
        pipe = subprocess.PIPE
        cluster = subprocess.Popen([*words, "--port-base", "0"], stdin=pipe, stdout=pipe, text=True)
        self._clusters.append(cluster)
        printed = ""
        for said in command.answer.splitlines():
            line = _ends(cluster)[1].readline()
            for written, real in zip(URL.findall(said), URL.findall(line), strict=False):
                self._addresses |= addresses_of(int(written), int(real))
            printed += line
        self._compare(f"{block.place}: {command.text}", command.answer, printed)
        # Where commands look unless told otherwise.
        self._bash().run(f"export DODONA_URL={self._to_real(MASTER_URL)}")

    def _bash(self) -> Shell:
        self._shell = self._shell or Shell()
        return self._shell

    def _compare(self, place: str, said: str, printed: str) -> None:
        printed = self._to_written(printed)
        pattern = re.escape(_plain(said)).replace(r"\.\.\.", ".*?")
        if not re.fullmatch(pattern, _plain(printed), re.DOTALL):
            raise NotAsWritten(f"{place}\nit says:\n{said}\nand not:\n{printed}")

    def _to_real(self, text: str) -> str:
        return _replace(text, self._addresses.items())

    def _to_written(self, text: str) -> str:
        return _replace(text, ((real, written) for written, real in self._addresses.items()))


def _replace(text: str, pairs: Iterable[tuple[str, str]]) -> str:
    """All at once: what was put in is not looked at again."""
    table = dict(pairs)
    if not table:
        return text
    pattern = "|".join(rf"(?<!\d){re.escape(it)}(?!\d)" for it in table)
    return re.sub(pattern, lambda found: table[found[0]], text)


def _plain(text: str) -> str:
    return "\n".join(line.rstrip() for line in UNLIKE.sub("N", text).strip().splitlines())


def run_job(job: Job) -> None:
    """In this process. Raises as `PageRun.run`."""
    with PageRun(job.addresses) as page:
        if job.before:
            page.execute(job.before)
        page.run(job.blocks, job.skipped)


if __name__ == "__main__":
    sys.path.insert(0, os.getcwd())  # as for whoever types it
    run_job(Job.from_json(sys.stdin.read()))
