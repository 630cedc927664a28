"""`python -m dodona_loadtest.bench`: Dodona beside its peers, in one run on one machine.

It prints ratios and judges nothing: its exit status says only whether it ran. Everything lives in
a temporary folder and on free loopback ports, and is gone afterwards.
"""

import argparse
import shlex
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rich.console import Console

from dodona_loadtest.harness.machine import machine_facts
from dodona_loadtest.harness.payload import KEYS_COUNT, ROW_BYTES
from dodona_loadtest.harness.pinning import PINNING_NAMES, choose_pinning, pin_this_process
from dodona_loadtest.harness.report import Report
from dodona_loadtest.harness.rounds import Plan, run_row
from dodona_loadtest.harness.row import RowResult
from dodona_loadtest.rows import ROWS

REPORT_COLUMNS: Final = 132
"""Where the output is a pipe or a file and so has no width of its own."""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m dodona_loadtest.bench", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--quick", action="store_true", help="about a minute: short, fewer callers")
    parser.add_argument(
        "--only", action="append", choices=[row.name for row in ROWS], help="this row; repeatable"
    )
    parser.add_argument("--pin", choices=PINNING_NAMES, default="none", help="default: none")
    parser.add_argument("--rounds", type=_positive_int, default=3, help="default: 3")
    parser.add_argument("--seconds", type=_positive_float, help="a measurement; default: 3")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="also write the report here")
    parser.add_argument(
        "--folder", type=Path, help="put the data under this folder; default: the temporary one"
    )
    return parser


def _positive_int(text: str) -> int:
    value = int(text)
    if not 0 < value <= 100:
        raise argparse.ArgumentTypeError("must be between 1 and 100")
    return value


def _positive_float(text: str) -> float:
    value = float(text)
    if not 0 < value <= 600:
        raise argparse.ArgumentTypeError("must be above 0 and at most 600")
    return value


def _plan(arguments: argparse.Namespace) -> Plan:
    measure_s = arguments.seconds or (0.5 if arguments.quick else 3.0)
    return Plan(
        rounds=arguments.rounds,
        warm_up_s=min(1.0, measure_s / 2),
        measure_s=measure_s,
        is_quick=arguments.quick,
        pinning=choose_pinning(arguments.pin),
    )


def _run(arguments: argparse.Namespace, plan: Plan, console: Console) -> list[RowResult]:
    rows = [row for row in ROWS if arguments.only is None or row.name in arguments.only]
    pin_this_process(plan.pinning.servers)  # the servers that are started here inherit it
    with tempfile.TemporaryDirectory(prefix="dodona-bench-", dir=arguments.folder) as folder:
        Path(folder).chmod(0o755)  # a peer's server may run as another user
        with console.status("starting") as status:
            return [run_row(row, plan, Path(folder), status.update) for row in rows]


def _facts(
    arguments: argparse.Namespace, plan: Plan, words: Sequence[str]
) -> list[tuple[str, str]]:
    folder = arguments.folder or Path(tempfile.gettempdir())
    lengths = f"each {plan.measure_s:g} s after {plan.warm_up_s:g} s of warm-up"
    return [
        ("command", shlex.join(["python", "-m", "dodona_loadtest.bench", *words])),
        *machine_facts(folder),
        ("pinning", str(plan.pinning)),
        ("rounds", f"{plan.rounds} interleaved, {lengths}; figures are medians over the rounds"),
        ("rows", f"{ROW_BYTES} bytes, keys uniform over {KEYS_COUNT:,}, tables empty at first"),
    ]


def main(command: Sequence[str] | None = None) -> int:
    """Run the rows asked for and report. Returns the exit status."""
    words = sys.argv[1:] if command is None else command
    arguments = _parser().parse_args(words)
    console = Console()
    if not console.is_terminal:
        console = Console(width=REPORT_COLUMNS)
    plan = _plan(arguments)
    facts = _facts(arguments, plan, words)
    report = Report(facts, _run(arguments, plan, console))
    report.print(console)
    if arguments.markdown:
        arguments.markdown.write_text(report.markdown(), encoding="utf-8")
        console.print(f"\nwritten to {arguments.markdown}")
    return 0 if any(result.lines for result in report.results) else 1


if __name__ == "__main__":
    sys.exit(main())
