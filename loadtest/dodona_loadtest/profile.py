"""`python -m dodona_loadtest.profile --row commits`: where Dodona's time goes in a benchmark's row.

It runs Dodona's part of the row on private processes, looks at the client and at all servers at
once with py-spy, and writes a flame graph of each and a page that says where the time went. The
watching costs time itself: rates are those of a watched run. py-spy has to be allowed to look at
processes that it did not start, which on most machines takes root.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from dodona_loadtest.harness.client_process import ClientProcess, Order
from dodona_loadtest.harness.errors import ContenderError, ContenderFailed, ContenderMissing
from dodona_loadtest.harness.machine import processor_name
from dodona_loadtest.harness.measure import Sample
from dodona_loadtest.harness.pinning import choose_pinning
from dodona_loadtest.harness.row import Row, Running
from dodona_loadtest.harness.stacks import (
    process_name,
    profile_lines,
    read_stacks,
    titled,
    without_machine,
)
from dodona_loadtest.rows import ROWS

ROWS_BY_NAME: Final = {row.name: row for row in ROWS}
FOLDER: Final = Path(__file__).parents[1] / "profiles"
WARM_UP_S: Final = 1.0
SLACK_S: Final = 1.0
"""For py-spy to find its way into a process, each time."""


@dataclass(frozen=True, slots=True)
class Look:
    """How to look, and what at."""

    row: Row
    callers: int
    seconds: float
    rate: int
    is_native: bool

    @property
    def stem(self) -> str:
        """Of the files' names."""
        return f"{self.row.name}-{self.callers}"


@dataclass(frozen=True, slots=True)
class Seen:
    """What was seen."""

    sample: Sample
    stacks: dict[str, str]
    """Of each process, by its name, py-spy's raw output."""
    graphs: dict[str, str]


def look(asked: Look, folder: Path) -> Seen:
    """Raises ContenderError."""
    contender = asked.row.contenders[0]
    cores = choose_pinning("none").client
    with (
        contender.start(folder) as running,
        ClientProcess(running.load, cores, asked.callers) as client,
    ):
        processes = _named(running, client.pid)
        order = Order(asked.callers, WARM_UP_S, 2 * (asked.seconds + SLACK_S))
        measuring = _Measuring(client, order)
        measuring.start()
        time.sleep(WARM_UP_S)
        stacks = _record(processes, asked, folder, "raw")
        graphs = _record(processes, asked, folder, "flamegraph")
        measuring.join()
    if measuring.sample is None:
        raise ContenderFailed(measuring.error)
    return Seen(measuring.sample, stacks, graphs)


class _Measuring(threading.Thread):
    """The load, while others look."""

    def __init__(self, client: ClientProcess, order: Order) -> None:
        super().__init__(name="measuring")
        self._client = client
        self._order = order
        self.sample: Sample | None = None
        self.error = ""

    def run(self) -> None:
        try:
            self.sample = self._client.measure(self._order)
        except ContenderError as error:
            self.error = str(error)


def _named(running: Running, client_pid: int) -> dict[str, int]:
    """Processes by their names, the client first."""
    named = {"client": client_pid}
    for pid in running.server_pids:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
        name = process_name(words)
        named[f"{name} {pid}" if name in named else name] = pid
    return named


def _record(processes: dict[str, int], asked: Look, folder: Path, form: str) -> dict[str, str]:
    """All processes at once. → what py-spy wrote of each."""
    base = [_py_spy(), "record", "--nonblocking", "--function", "--format", form]
    base += ["--rate", str(asked.rate), "--duration", f"{asked.seconds:.0f}"]
    base += ["--native"] if asked.is_native else []
    started = []
    for name, pid in processes.items():
        path = folder / f"{pid}.{form}"
        command = [*base, "--pid", str(pid), "--output", str(path)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        started.append((name, path, process))
    seen = {}
    for name, path, process in started:
        said, _ = process.communicate(timeout=asked.seconds + 60)
        if process.returncode or not path.exists():
            raise ContenderFailed(f"py-spy, of the {name}: {said.decode(errors='replace')[-500:]}")
        seen[name] = without_machine(path.read_text("utf-8"))
    return seen


def _py_spy() -> str:
    beside = Path(sys.executable).parent / "py-spy"
    found = str(beside) if beside.exists() else shutil.which("py-spy")
    if found is None:
        raise ContenderMissing("no py-spy: it comes with the extra `loadtest`")
    return found


def write(asked: Look, seen: Seen, folder: Path) -> Path:
    """The graphs and the page. → the page."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [
        f"# Where the time goes: {asked.row.name}, {asked.callers} callers",
        "",
        _preface(asked, seen.sample),
    ]
    for name, stacks in seen.stacks.items():
        graph = f"{asked.stem}-{name.replace(' ', '-')}.svg"
        title = f"{asked.row.name}, {asked.callers} callers: {name}"
        (folder / graph).write_text(titled(seen.graphs[name], title), encoding="utf-8")
        profile = profile_lines(read_stacks(stacks), asked.seconds, asked.rate)
        lines += ["", f"## {name.capitalize()}", "", f"[Flame graph]({graph})", "", *profile]
    page = folder / f"{asked.stem}.md"
    page.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return page


def _preface(asked: Look, sample: Sample) -> str:
    return (
        f"{asked.row.title}. Dodona, as py-spy saw it {asked.rate} times a second for "
        f"{asked.seconds:g} s on {datetime.now(UTC).date().isoformat()}, {processor_name()}; "
        f"{sample.rate:,.0f} operations a second meanwhile, p50 {sample.latency_us_p50 / 1e3:.2f} "
        f"ms, p99 {sample.latency_us_p99 / 1e3:.2f} ms. Shares are of each process's own time; "
        "idle threads are left out, and so is what only starts a loop."
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m dodona_loadtest.profile", description=__doc__.splitlines()[0]
    )
    parser.add_argument(
        "--row", action="append", choices=list(ROWS_BY_NAME), help="repeatable; default: all"
    )
    parser.add_argument("--callers", type=int, help="default: the row's largest number")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each look; default: 10")
    parser.add_argument("--rate", type=int, default=200, help="looks a second; default: 200")
    parser.add_argument("--native", action="store_true", help="into compiled code as well")
    parser.add_argument("--into", type=Path, default=FOLDER, metavar="FOLDER")
    return parser


def main(command: Sequence[str] | None = None) -> int:
    """Returns the exit status: 1 if a row could not be looked at."""
    parser = _parser()
    given = parser.parse_args(command)
    if given.seconds < 1 or not 0 < given.rate <= 1_000 or (given.callers or 1) < 1:
        parser.error("--seconds is at least 1, --rate 1 to 1,000, --callers at least 1")
    status = 0
    for name in given.row or list(ROWS_BY_NAME):
        row = ROWS_BY_NAME[name]
        callers = given.callers or max(row.callers)
        asked = Look(row, callers, given.seconds, given.rate, given.native)
        with tempfile.TemporaryDirectory(prefix="dodona-profile-") as folder:
            try:
                print(write(asked, look(asked, Path(folder)), given.into))
            except ContenderError as error:
                print(f"profile: {name}: {error}", file=sys.stderr)
                status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
