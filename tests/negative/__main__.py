"""`python -m negative`: plant every known bug, and say how many seeds it took to catch it.

Exit status 1 if one was not caught. `--only` and `--seed` look at one bug under one seed.
"""

import argparse
import statistics
import sys
import time
from pathlib import Path

from dodona_loadtest.harness.document import write_section
from negative import table
from negative.bug import PlantedBug
from negative.hunt import catch, check
from negative.planted import BUGS, EXCUSES
from negative.table import Line
from negative.workers import hunt_at, start_workers


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m negative", description=__doc__)
    parser.add_argument("--only", type=int, metavar="ITEM", help="of the catalogue")
    parser.add_argument("--seed", type=int, help="look at this one only")
    parser.add_argument("--workers", type=int, metavar="COUNT", help="default: one a core")
    parser.add_argument("--markdown", type=Path, metavar="PAGE", help="write the table there")
    given = parser.parse_args(arguments)
    places = [at for at, bug in enumerate(BUGS) if given.only in (None, bug.item)]
    if given.seed is not None:
        return _look(places, given.seed)
    began = time.perf_counter()
    lines = _hunt(places, given.workers)
    print(table.show(lines))
    print(_summary(lines, time.perf_counter() - began))
    if given.markdown is not None:
        write_section(given.markdown, table.SECTION, table.markdown(lines, EXCUSES))
    return 0 if all(line.is_caught for line in lines) else 1


def _hunt(places: list[int], worker_count: int) -> list[Line]:
    with start_workers(worker_count) as workers:
        drawn = [workers.submit(hunt_at, place, None) for place in places]
        prepared = [
            workers.submit(hunt_at, place, "prepared") if BUGS[place].is_of_one_round else None
            for place in places
        ]
        return [
            Line(
                BUGS[place],
                drawn[index].result(),
                None if (asked := prepared[index]) is None else asked.result(),
                BUGS[place].is_of_one_round,
            )
            for index, place in enumerate(places)
        ]


def _look(places: list[int], seed: int) -> int:
    for bug in (BUGS[place] for place in places):
        found = catch(bug, seed) if isinstance(bug, PlantedBug) else check(bug)
        print(f"{bug.title}: {found}")
    return 0


def _summary(lines: list[Line], real_seconds: float) -> str:
    counts = [
        found.seed_count
        for line in lines
        for found in (line.drawn, line.prepared)
        if found is not None and isinstance(line.bug, PlantedBug)
    ]
    spread = f"seeds to catch: median {statistics.median(counts):g}, at most {max(counts)}"
    caught_count = sum(line.is_caught for line in lines)
    return f"{caught_count} of {len(lines)} caught, {spread}; {real_seconds:.0f} s of real time"


if __name__ == "__main__":
    sys.exit(main())
