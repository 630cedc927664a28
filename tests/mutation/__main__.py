"""`python -m mutation [MODULE...]`: change the cores a little, and see which tests notice.

Works in a private copy of the checkout, one mutant at a time, and keeps what became of each, so
that the next call goes on where this one ended. Prints a table, and the mutants that survived.
Exit status 1 if one survived that is not known to be equivalent.
"""

import argparse
import fcntl
import os
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import cache
from pathlib import Path

from dodona_loadtest.harness.document import check_place, write_section
from mutation import report
from mutation.checkout import environment_of, refresh
from mutation.plan import (
    hash_of,
    judges_of,
    modules_in,
    modules_of,
    near_judges_of,
    part_of,
)
from mutation.report import Line
from mutation.runner import BaselineFailed, Bench, OnDisk, Runner, command_of
from mutation.session import ModuleSession

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / ".mutants"
MINUTES = 60.0
COUNT_MAX = 100_000


def main(arguments: list[str] | None = None) -> int:
    given = _parser().parse_args(arguments)
    markdown = given.markdown.resolve() if given.markdown else None
    if markdown:
        check_place(markdown, report.SECTION)
    FOLDER.mkdir(exist_ok=True)
    with _alone(FOLDER):
        lines = _lines(FOLDER / "checkout", given)
    text = report.table(lines)
    print(text)
    print(report.survivors(lines))
    if markdown:
        write_section(markdown, report.SECTION, text)
    return 1 if any(line.survivors for line in lines) else 0


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Keep the folder for one run. A second one would write the original over a mutant that is on
    the disk, or judge with it. Raises SystemExit."""
    with (folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            text = f"Another run uses {folder}. Wait for its end, or use another checkout."
            raise SystemExit(text) from None
        yield


def _lines(copy: Path, given: argparse.Namespace) -> list[Line]:
    """Raises SystemExit if the tests fail without a mutant."""
    refresh(ROOT, copy)
    os.chdir(copy)
    os.environ.update(environment_of(copy))
    try:
        return _work_off(_chosen(given.modules), given)
    except BaselineFailed as error:
        raise SystemExit(str(error)) from None


def _parser() -> argparse.ArgumentParser:
    text = (__doc__ or "").splitlines()[0]
    parser = argparse.ArgumentParser(prog="python -m mutation", description=text)
    parser.add_argument("modules", nargs="*", help="files, or beginnings of their paths")
    parser.add_argument("--minutes", type=float, default=MINUTES, help="of all modules together")
    parser.add_argument("--count", type=int, default=COUNT_MAX, help="mutants of each module, most")
    parser.add_argument("--report", action="store_true", help="run none, say what is known")
    parser.add_argument("--markdown", type=Path, metavar="PAGE", help="write the table there")
    return parser


def _chosen(beginnings: list[str]) -> list[str]:
    """Raises SystemExit where one names nothing."""
    modules = modules_in(Path())
    for beginning in beginnings:
        if not any(it.startswith(beginning) for it in modules):
            raise SystemExit(f"no module that is mutated begins with {beginning}")
    return [it for it in modules if not beginnings or it.startswith(tuple(beginnings))]


def _work_off(modules: list[str], given: argparse.Namespace) -> list[Line]:
    until = time.monotonic() + given.minutes * 60
    lines = []
    with ExitStack() as stack:
        benches = cache(lambda part: stack.enter_context(closing(_bench_of(part))))
        for module in modules:
            session = ModuleSession(FOLDER, module, judges_of(Path(), module))
            session.open()
            if not given.report and session.left_count and time.monotonic() < until:
                _judge(session, benches(part_of(module)), until, given.count)
            lines.append(Line(module, list(session.mutants()), session.left_count))
    return lines


def _judge(session: ModuleSession, bench: Bench, until: float, count_max: int) -> None:
    on_disk = OnDisk(command_of(session.module, near_judges_of(Path(), session.module)))
    began = time.monotonic()
    count = session.run(Runner(bench, on_disk).judge, until, count_max, _say)
    seconds = time.monotonic() - began
    _say(f"{session.module}: {count} mutants in {seconds:.0f} s, {session.left_count} left")


def _bench_of(part: str) -> Bench:
    """It runs those tests of the part once that it has not run before."""
    _say(f"{part}: looking which tests reach which functions")
    width = len(os.sched_getaffinity(0))
    memory = FOLDER / f"reach-{part}-{hash_of(*map(Path, modules_of(Path(), part)))}.jsonl"
    for other in FOLDER.glob(f"reach-{part}-*"):
        if other != memory:
            other.unlink()
    command = [sys.executable, "-m", "mutation.bench", part, str(width), str(memory)]
    return Bench(command, FOLDER / f"bench-{part}.log", width)


def _say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
