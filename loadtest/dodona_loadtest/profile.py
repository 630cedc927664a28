"""`python -m dodona_loadtest.profile --row commits`: where Dodona's time goes in a benchmark.

It runs Dodona's part of a row or study on private processes. It samples the client and all servers
together with py-spy. Then it writes a flame graph of each, and a page that says where the time
went. Sampling costs time itself: rates are those of a sampled run. py-spy needs the right to look
at processes that it did not start, which on most machines takes root.

It runs a study's story twice: for the figures of the page, and for the flame graphs.
"""

import argparse
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final

from dodona_loadtest.harness.client_process import ClientProcess, Order
from dodona_loadtest.harness.ending import end_in_order
from dodona_loadtest.harness.errors import ContenderError, ContenderFailed
from dodona_loadtest.harness.machine import processor_name
from dodona_loadtest.harness.measure import Sample
from dodona_loadtest.harness.pinning import choose_pinning
from dodona_loadtest.harness.profilers import (
    SLACK_S,
    Form,
    Manner,
    Profiler,
    Watch,
    descendants,
)
from dodona_loadtest.harness.rounds import placed
from dodona_loadtest.harness.row import Row, Running
from dodona_loadtest.harness.servers import command_of
from dodona_loadtest.harness.stacks import process_name, profile_lines, read_stacks, titled
from dodona_loadtest.harness.study import Effort, Study
from dodona_loadtest.rows import ROWS
from dodona_loadtest.studies import (
    CODEC_STUDIES,
    GATEWAY_STUDIES,
    IDLE_STUDIES,
    REPLICA_STUDIES,
    SPARK_STUDIES,
    STUDIES,
    TYPE_STUDIES,
)

ROWS_BY_NAME: Final = {row.name: row for row in ROWS}
STUDIES_BY_NAME: Final = {
    study.name: study
    for study in (
        *STUDIES,
        *REPLICA_STUDIES,
        *TYPE_STUDIES,
        *SPARK_STUDIES,
        *GATEWAY_STUDIES,
        *CODEC_STUDIES,
        *IDLE_STUDIES,
    )
}
FOLDER: Final = Path(__file__).parents[1] / "profiles"
"""In a checkout: the pages that are kept."""
WARM_UP_S: Final = 1.0
FORMS: Final[tuple[Form, Form]] = ("raw", "flamegraph")
BUSY_SHARE_MIN: Final = 0.03
"""Processes of a study that were less busy are only named."""


@dataclass(frozen=True, slots=True)
class Look:
    """How to sample a row, and with how many callers."""

    row: Row
    callers: int
    seconds: float
    manner: Manner

    @property
    def stem(self) -> str:
        """The first part of the files' names."""
        return f"{self.row.name}-{self.callers}"


@dataclass(frozen=True, slots=True)
class Seen:
    """The results of a row."""

    sample: Sample
    stacks: dict[str, str]
    """py-spy's raw output for each process, by its name."""
    graphs: dict[str, str]


def look(asked: Look, folder: Path) -> Seen:
    """Run a row and sample it. Raises ContenderError."""
    with ExitStack() as stack:
        # Profilers start once this process is back on all cores: they are no part of the row.
        with placed(asked.row, choose_pinning("none")) as pinning:
            running = stack.enter_context(asked.row.contenders[0].start(folder))
            client = ClientProcess(running.load, pinning.client, asked.callers)
            stack.enter_context(client)
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
    """The load, which runs while profilers sample it."""

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
    """Return processes by their names, the client first."""
    named = {"client": client_pid}
    for pid in running.server_pids:
        name = process_name(command_of(pid))
        named[f"{name} {pid}" if name in named else name] = pid
    return named


def _record(processes: dict[str, int], asked: Look, folder: Path, form: Form) -> dict[str, str]:
    """Sample all processes together. Return py-spy's output for each."""
    profilers = {
        name: Profiler(pid, asked.manner, form, folder, asked.seconds)
        for name, pid in processes.items()
    }
    return {name: profiler.read() for name, profiler in profilers.items()}


def write(asked: Look, seen: Seen, folder: Path) -> Path:
    """Write the graphs and the page. Return the path of the page."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [
        f"# Where the time goes: {asked.row.name}, {asked.callers} callers",
        "",
        _preface(asked, seen.sample),
    ]
    for name, stacks in seen.stacks.items():
        lines += ["", f"## {name.capitalize()}", ""]
        if seen.graphs[name]:
            graph = f"{asked.stem}-{name.replace(' ', '-')}.svg"
            title = f"{asked.row.name}, {asked.callers} callers: {name}"
            (folder / graph).write_text(titled(seen.graphs[name], title), encoding="utf-8")
            lines += [f"[Flame graph]({graph})", ""]
        lines += profile_lines(read_stacks(stacks), asked.seconds, asked.manner.rate)
    page = folder / f"{asked.stem}.md"
    page.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return page


def _preface(asked: Look, sample: Sample) -> str:
    return (
        f"{asked.row.title}. Dodona, as py-spy saw it {asked.manner.rate} times a second for "
        f"{asked.seconds:g} s on {datetime.now(UTC).date().isoformat()}, {processor_name()}; "
        f"{sample.rate:,.0f} operations a second meanwhile, p50 {sample.latency_us_p50 / 1e3:.2f} "
        f"ms, p99 {sample.latency_us_p99 / 1e3:.2f} ms. Shares are of each process's own time; "
        "idle threads are left out, and so is what only starts a loop."
    )


@dataclass(frozen=True, slots=True)
class SeenStory:
    """The results of a study."""

    duration_s: float
    stacks: dict[str, str]
    graphs: dict[str, str]


def look_at_story(study: Study, effort: Effort, manner: Manner, folder: Path) -> SeenStory:
    """Run a study's story and sample it. Raises ContenderError."""
    strangers = descendants()  # of the caller, such as the workers of Spark in an earlier test
    own_folder = folder / "story"
    own_folder.mkdir(mode=0o755)
    with study.performers[0].start(own_folder, effort) as performance:
        if study.warms_up:
            performance.perform(-1)
        watches = []
        for number, form in enumerate(FORMS):
            with Watch(manner, form, folder, strangers) as watch:
                performance.perform(number)
            watches.append(watch)
    numbers, graphs = watches
    return SeenStory(numbers.duration_s, numbers.seen, graphs.seen)


def write_story(study: Study, manner: Manner, seen: SeenStory, folder: Path) -> Path:
    """Write the graphs of the busy processes, and the page. Return the path of the page."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [f"# Where the time goes: {study.name}", "", _story_preface(study, manner, seen)]
    idle = []
    for name, stacks in seen.stacks.items():
        profile = read_stacks(stacks)
        if profile.samples < BUSY_SHARE_MIN * seen.duration_s * manner.rate:
            idle.append(name)
            continue
        lines += ["", f"## {name.capitalize()}", ""]
        if seen.graphs.get(name):
            graph = f"{study.name}-{name.replace(' ', '-')}.svg"
            title = f"{study.name}: {name}"
            (folder / graph).write_text(titled(seen.graphs[name], title), encoding="utf-8")
            lines += [f"[Flame graph]({graph})", ""]
        lines += profile_lines(profile, seen.duration_s, manner.rate)
    if idle:
        lines += ["", f"Busy for less than {BUSY_SHARE_MIN:.0%} of the time: {', '.join(idle)}."]
    page = folder / f"{study.name}.md"
    page.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return page


def _story_preface(study: Study, manner: Manner, seen: SeenStory) -> str:
    return (
        f"{study.title}. Dodona's part of one round, as py-spy saw it {manner.rate} times a second "
        f"for {seen.duration_s:.0f} s on {datetime.now(UTC).date().isoformat()}, "
        f"{processor_name()}. The process `story` tells the others what to do. Shares are of each "
        "process's own time; idle threads are left out, and so is what only starts a loop. Flame "
        "graphs are of another round."
    )


def command_line() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m dodona_loadtest.profile", description=__doc__.splitlines()[0]
    )
    parser.add_argument(
        "--row", action="append", choices=list(ROWS_BY_NAME), help="repeatable; default: all"
    )
    parser.add_argument(
        "--study", action="append", choices=list(STUDIES_BY_NAME), help="repeatable; default: none"
    )
    parser.add_argument("--all", action="store_true", help="every row and every study")
    parser.add_argument(
        "--scale", type=float, default=1.0, help="share of a study's sizes; default: 1"
    )
    parser.add_argument("--callers", type=int, help="default: the row's largest number")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each look; default: 10")
    parser.add_argument("--rate", type=int, default=200, help="looks a second; default: 200")
    parser.add_argument("--native", action="store_true", help="into compiled code as well")
    into = FOLDER if FOLDER.is_dir() else Path("profiles")
    parser.add_argument("--into", type=Path, default=into, metavar="FOLDER")
    return parser


def main(command: Sequence[str] | None = None) -> int:
    """Run the command. Return the exit status: 1 if a row or study could not be sampled."""
    parser = command_line()
    given = parser.parse_args(command)
    is_wrong = given.seconds < 1 or not 0 < given.rate <= 1_000 or (given.callers or 1) < 1
    if is_wrong or not 0 < given.scale <= 1:
        parser.error(
            "--seconds is at least 1, --rate 1 to 1,000, --callers at least 1, "
            "--scale above 0 and at most 1"
        )
    manner = Manner(given.rate, given.native)
    looks: list[tuple[str, Callable[[Path], Path]]] = []
    rows, studies = chosen(given)
    for name in rows:
        row = ROWS_BY_NAME[name]
        asked = Look(row, given.callers or max(row.callers), given.seconds, manner)
        looks.append((name, partial(_profile_row, asked, given.into)))
    cores = choose_pinning("none").client
    effort = Effort(given.scale, given.seconds, cores, cores)
    looks += [(name, partial(_profile_study, name, effort, manner, given.into)) for name in studies]
    return max([_try(name, profile) for name, profile in looks])


def chosen(given: argparse.Namespace) -> tuple[list[str], list[str]]:
    """Return the names of rows and of studies."""
    if given.all:
        return list(ROWS_BY_NAME), list(STUDIES_BY_NAME)
    return given.row or ([] if given.study else list(ROWS_BY_NAME)), given.study or []


def _profile_row(asked: Look, into: Path, folder: Path) -> Path:
    return write(asked, look(asked, folder), into)


def _profile_study(name: str, effort: Effort, manner: Manner, into: Path, folder: Path) -> Path:
    study = STUDIES_BY_NAME[name]
    return write_story(study, manner, look_at_story(study, effort, manner, folder), into)


def _try(name: str, profile: Callable[[Path], Path]) -> int:
    """Profile one row or study. Return the exit status."""
    with tempfile.TemporaryDirectory(prefix="dodona-profile-") as folder:
        try:
            print(profile(Path(folder)))
        except ContenderError as error:
            print(f"profile: {name}: {error}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    end_in_order()
    sys.exit(main())
