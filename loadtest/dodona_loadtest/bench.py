"""`python -m dodona_loadtest.bench`: compare Dodona with its peers, in one run on one machine.

It prints ratios and judges no figures. Its exit status says only whether the run worked, and Dodona
worked to its end. All data are in a temporary folder, and all servers on free loopback ports. All
of them are gone afterwards.
"""

import argparse
import shlex
import sys
import tempfile
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal, get_args

from rich.console import Console

from dodona_loadtest.harness.document import check_place, write_section
from dodona_loadtest.harness.ending import end_in_order
from dodona_loadtest.harness.machine import machine_facts
from dodona_loadtest.harness.payload import KEYS_COUNT, ROW_BYTES
from dodona_loadtest.harness.pinning import PINNING_NAMES, choose_pinning, pin_this_process
from dodona_loadtest.harness.recorded import Recorded, record, write_recorded
from dodona_loadtest.harness.report import Report, has_figures
from dodona_loadtest.harness.rounds import Plan, run_row
from dodona_loadtest.harness.row import Row, RowResult
from dodona_loadtest.harness.section import summary_of
from dodona_loadtest.harness.study import Study, StudyResult
from dodona_loadtest.harness.study_rounds import run_study
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

Group = Literal["commits", "storage", "replicas", "types", "spark", "codecs", "gateway", "idle"]
Facts = list[tuple[str, str]]
ITEMS: Final[dict[str, tuple[Group, Row | Study]]] = {
    **{row.name: ("commits", row) for row in ROWS},
    **{study.name: ("storage", study) for study in STUDIES},
    **{study.name: ("replicas", study) for study in REPLICA_STUDIES},
    **{study.name: ("types", study) for study in TYPE_STUDIES},
    **{study.name: ("spark", study) for study in SPARK_STUDIES},
    **{study.name: ("codecs", study) for study in CODEC_STUDIES},
    **{study.name: ("gateway", study) for study in GATEWAY_STUDIES},
    **{study.name: ("idle", study) for study in IDLE_STUDIES},
}
QUICK_SCALE: Final = 0.02
REPORT_COLUMNS: Final = 132
"""The width for a pipe or a file, which has no width of its own."""


def command_line() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m dodona_loadtest.bench", description=__doc__.splitlines()[0]
    )
    parser.add_argument(
        "--quick", action="store_true", help="a few minutes: short, small, fewer callers"
    )
    parser.add_argument("--rows", choices=get_args(Group), help="those of one group; default: all")
    parser.add_argument("--only", action="append", choices=list(ITEMS), help="this row; repeatable")
    parser.add_argument("--pin", choices=PINNING_NAMES, default="none", help="default: none")
    parser.add_argument("--rounds", type=_positive_int, default=3, help="default: 3")
    parser.add_argument("--seconds", type=_positive_float, help="a measurement; default: 3")
    parser.add_argument(
        "--scale", type=_positive_float, help="share of the studies' sizes; default: 1"
    )
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="also write the report here")
    parser.add_argument(
        "--section",
        type=Path,
        metavar="FILE",
        help="also write it into this document, between the markers that bear the group's name",
    )
    parser.add_argument(
        "--json",
        type=Path,
        metavar="FILE",
        help="also write the figures of all rounds here; dodona_loadtest.pictures draws from it",
    )
    parser.add_argument(
        "--pictures", type=Path, metavar="FOLDER", help="also draw a PNG of each row and study here"
    )
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
        scale=arguments.scale or (QUICK_SCALE if arguments.quick else 1.0),
    )


def chosen(arguments: argparse.Namespace) -> list[Row | Study]:
    """Return what to run: the items of `--only`, else a whole group or everything."""
    if arguments.only is not None:
        return [item for name, (_, item) in ITEMS.items() if name in arguments.only]
    return [item for group, item in ITEMS.values() if arguments.rows in (None, group)]


def _run(
    arguments: argparse.Namespace, plan: Plan, console: Console, facts: Facts
) -> list[RowResult | StudyResult]:
    """Run rows and studies, and keep the figures of each as soon as it is done. So an end of the
    run loses only the one that is under way."""
    pin_this_process(plan.pinning.servers)  # the servers that start here inherit it
    results: list[RowResult | StudyResult] = []
    with tempfile.TemporaryDirectory(prefix="dodona-bench-", dir=arguments.folder) as name:
        folder = Path(name)
        folder.chmod(0o755)  # a peer's server may run as another user
        with console.status("starting") as status:
            for item in chosen(arguments):
                if isinstance(item, Study):
                    results.append(run_study(item, plan, folder, status.update))
                else:
                    results.append(run_row(item, plan, folder, status.update))
                _keep(arguments, record(facts, results))
    return results


def _keep(arguments: argparse.Namespace, recorded: Recorded) -> None:
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        write_recorded(arguments.json, recorded)


def _facts(arguments: argparse.Namespace, plan: Plan, words: Sequence[str]) -> Facts:
    folder = arguments.folder or Path(tempfile.gettempdir())
    lengths = f"each {plan.measure_s:g} s after {plan.warm_up_s:g} s of warm-up"
    facts = [
        ("date", datetime.now(UTC).date().isoformat()),
        ("command", shlex.join(["python", "-m", "dodona_loadtest.bench", *words])),
        *machine_facts(folder),
        ("pinning", str(plan.pinning)),
        ("rounds", f"{plan.rounds} interleaved, {lengths}; figures are {summary_of(plan.rounds)}"),
    ]
    groups = {group for group, item in ITEMS.values() if item in chosen(arguments)}
    if "commits" in groups:
        text = f"{ROW_BYTES} bytes, keys uniform over {KEYS_COUNT:,}, tables empty at first"
        facts.append(("rows of commits", text))
    if groups & {"storage", "replicas", "types", "spark", "codecs"}:
        facts.append(("rows of studies", f"{plan.scale:g} times as many as each study says"))
    return facts


def main(command: Sequence[str] | None = None) -> int:
    """Run the chosen rows and report. Return the exit status."""
    words = sys.argv[1:] if command is None else command
    parser = command_line()
    arguments = parser.parse_args(words)
    if arguments.section:
        try:
            check_place(arguments.section, arguments.rows or "")
        except ValueError as error:
            parser.error(str(error))
    console = Console()
    if not console.is_terminal:
        console = Console(width=REPORT_COLUMNS)
    plan = _plan(arguments)
    facts = _facts(arguments, plan, words)
    report = Report(facts, _run(arguments, plan, console, facts), arguments.pictures)
    report.print(console)
    for path in _write(arguments, report):
        console.print(f"\nwritten: {path}")
    return exit_status(report.results)


def exit_status(results: Sequence[RowResult | StudyResult]) -> int:
    """Return 0 if there are figures and Dodona failed nowhere: a failure may mean lost rows."""
    is_failed = any(_first(it) in it.failed for it in results)
    return 0 if any(map(has_figures, results)) and not is_failed else 1


def _first(result: RowResult | StudyResult) -> str:
    """Return the name of the contender that the others are compared with."""
    if isinstance(result, StudyResult):
        return result.study.performers[0].name
    return result.row.contenders[0].name


def _write(arguments: argparse.Namespace, report: Report) -> Iterator[Path]:
    """Write all requested files. Yields their paths."""
    recorded = record(report.facts, report.results)
    if arguments.json:
        yield arguments.json  # it is written already
    if arguments.pictures:
        from dodona_loadtest.harness.drawing import draw_all  # matplotlib takes a second to load

        yield from draw_all(recorded, arguments.pictures)
    if arguments.markdown:
        arguments.markdown.parent.mkdir(parents=True, exist_ok=True)
        arguments.markdown.write_text(report.markdown(arguments.markdown.parent), encoding="utf-8")
        yield arguments.markdown
    if arguments.section:
        write_section(arguments.section, arguments.rows, report.section(arguments.section.parent))
        yield arguments.section


if __name__ == "__main__":
    end_in_order()
    sys.exit(main())
