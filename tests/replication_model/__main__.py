"""`python -m replication_model`: search the design of replicated logs in its small configurations.

`--planted` searches with each planted bug, and prints the shortest trace of each with `--traces`.
`--walks` takes random walks. Exit status 1 if a promise was broken without a bug, a bug was not
found, or a search did not meet all states.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from replication_model import report
from replication_model.configurations import CONFIGURATIONS, SIZES, Configuration
from replication_model.explorer import explore
from replication_model.planted import BUGS
from replication_model.planted.bug import PlantedBug
from replication_model.walker import walk


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m replication_model", description=__doc__)
    parser.add_argument("--size", choices=(*SIZES, "all"), default="small")
    parser.add_argument("--planted", action="store_true", help="search with each planted bug")
    parser.add_argument("--traces", action="store_true", help="print the trace of each bug")
    parser.add_argument("--walks", type=int, metavar="COUNT", help="take random walks")
    parser.add_argument("--seed", type=int, default=1, help="of the first walk")
    parser.add_argument("--only", default="", metavar="TEXT", help="in a title, or a rule")
    parser.add_argument("--markdown", type=Path, metavar="PAGE", help="write the tables there")
    given = parser.parse_args(arguments)
    if given.walks is not None:
        return _walk(given.seed, given.walks)
    if given.planted:
        bugs = [it for it in BUGS if given.only in (it.rule, "") or given.only in it.title]
        return _hunt(bugs, given.traces, given.markdown)
    chosen = [
        it
        for it in CONFIGURATIONS
        if given.only in it.title and (given.size in (it.size, "all") or given.only)
    ]
    return _search(chosen, given.markdown)


def _search(chosen: Sequence[Configuration], page: Path | None) -> int:
    order = [it.title for it in CONFIGURATIONS]
    section, header = report.CONFIGURATIONS_SECTION, report.CONFIGURATIONS_HEADER
    rows, is_right = [], True
    for configuration in chosen:
        found = explore(configuration.make())
        rows.append(report.configuration_row(found, configuration.title))
        is_right = is_right and found.is_complete
        if found.violation:
            print(f"{configuration.title}\n{report.show_trace(found)}", flush=True)
        elif page is not None:
            report.write_rows(page, section, header, rows, order)
    print(report.show_rows(header, rows))
    return 0 if is_right else 1


def _hunt(bugs: Sequence[PlantedBug], shows_traces: bool, page: Path | None) -> int:
    order = [it.title for it in BUGS]
    section, header = report.PLANTED_SECTION, report.PLANTED_HEADER
    rows, found_count = [], 0
    for bug in bugs:
        found = explore(bug.make())
        rows.append(report.planted_row(bug.rule, bug.title, found))
        found_count += found.violation is not None
        if shows_traces:
            print(f"{bug.name}\n{report.show_trace(found)}\n", flush=True)
        if page is not None:
            report.write_rows(page, section, header, rows, order)
    print(report.show_rows(header, rows))
    print(f"{found_count} of {len(bugs)} found")
    return 0 if found_count == len(bugs) else 1


def _walk(first: int, count: int) -> int:
    step_count = 0
    for seed in range(first, first + count):
        found = walk(seed)
        step_count += found.step_count
        if found.violation:
            print(f"seed {seed}, {found.title}")
            print("\n".join(f"{number:3}  {text}" for number, text in enumerate(found.trace, 1)))
            print(f"     {found.violation}")
            return 1
    print(f"walks: {count:,}, steps: {step_count:,}, first seed: {first}: no violation")
    return 0


if __name__ == "__main__":
    sys.exit(main())
