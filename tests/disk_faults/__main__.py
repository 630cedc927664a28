"""`python -m disk_faults`: power cuts, failing calls and lying disks under the real stores.

Makes as many images of disks as are asked for, has the stores open each of them, and says which
promise was broken. Exit status 1 if one was. `--way`, `--workload` and `--part` do one job again.
"""

import argparse
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from disk_faults.campaign import PARTS, WAYS, Job, Tally, Watch, run_campaign, run_job
from disk_faults.report import SECTION, markdown
from disk_faults.workloads import WORKLOADS
from dodona_loadtest.harness.document import check_place, write_section


def main(arguments: list[str] | None = None) -> int:
    names = [workload.name for workload in WORKLOADS]
    parser = argparse.ArgumentParser(prog="python -m disk_faults", description=__doc__)
    parser.add_argument("--images", type=int, default=1000, metavar="COUNT", help="at least")
    parser.add_argument("--seed", type=int, default=1, help="the first")
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--markdown", type=Path, metavar="PAGE", help="write the summary there")
    parser.add_argument("--way", choices=WAYS)
    parser.add_argument("--workload", choices=names, default=names[0])
    parser.add_argument("--part", type=int, default=0, choices=range(PARTS))
    given = parser.parse_args(arguments)
    if given.markdown is not None:
        check_place(given.markdown, SECTION)
    began = time.perf_counter()
    if given.way is not None:
        job = Job(given.way, names.index(given.workload), given.seed, given.part)
        tally, seed_count, command = run_job(job), 1, f"python -m disk_faults {job}"
    else:
        command = f"python -m disk_faults --images {given.images} --seed {given.seed}"
        console = Console()
        with _watching(given.images, console) as watch:
            tally, seed_count = run_campaign(given.images, given.seed, given.workers, watch)
    text = markdown(tally, command, seed_count, time.perf_counter() - began)
    print(text)
    for problem in tally.problems:
        print(f"\n{problem}")
    if given.markdown is not None:
        write_section(given.markdown, SECTION, text)
    return 1 if tally.problems else 0


@contextmanager
def _watching(image_count: int, console: Console) -> Iterator[Watch]:
    """A bar on a terminal, and each broken promise when it is."""
    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("images"), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task("", total=image_count)
        told = 0

        def watch(tally: Tally) -> None:
            nonlocal told
            progress.update(task, completed=min(tally.image_count, image_count))
            for problem in tally.problems[told:]:
                console.print(problem, markup=False, highlight=False, soft_wrap=True)
            told = len(tally.problems)

        yield watch


if __name__ == "__main__":
    sys.exit(main())
