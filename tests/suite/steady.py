"""`python -m suite.steady WORDS`: runs tests again and again while other programs have all cores.

Owns: the busy programs, and which test failed how often. Words go to pytest: `-k locks`, a file.
All tests that they select run one after the other in one process, twenty times. Exits with 0 if
none has failed.
"""

import subprocess
import sys
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from suite.phases import COMPLETE, FAILED, NO_TESTS, OK, Running, pytest_command
from suite.reports import read_cases

TIMES: Final = 20
BUSY_COUNT: Final = 2
BUSY: Final = """
import os
parent = os.getppid()
while os.getppid() == parent:
    sum(range(100_000))
"""


def main(words: Sequence[str]) -> int:
    """Returns the exit status."""
    parser = ArgumentParser(prog="suite.steady", description=__doc__, allow_abbrev=False)
    parser.add_argument("--times", type=int, default=TIMES, help=f"how often ({TIMES})")
    parser.add_argument("--busy", type=int, default=BUSY_COUNT, help=f"programs ({BUSY_COUNT})")
    chosen, others = parser.parse_known_args(words)
    failed: Counter[str] = Counter()
    errors: dict[str, str] = {}
    with TemporaryDirectory() as name, busy(chosen.busy):
        report = Path(name) / "steady.xml"
        own = ("-p", "no:xdist", "-q", "-o", "junit_family=xunit1", f"--junitxml={report}")
        for time in range(1, chosen.times + 1):
            print(f"\nrun {time} of {chosen.times}", flush=True)
            status = Running(pytest_command(*own, *others)).end()
            if status == NO_TESTS or status not in COMPLETE:
                return status
            for case in read_cases(report, "steady"):
                if case.error is not None:
                    failed[case.name] += 1
                    errors.setdefault(case.name, case.error)
    print()
    for test, count in failed.most_common():
        print(f"{count} of {chosen.times} failed: {test}: {errors[test]}")
    print(f"{len(failed)} tests failed at least once in {chosen.times} runs")
    return FAILED if failed else OK


@contextmanager
def busy(count: int) -> Iterator[None]:
    """So many programs compute meanwhile."""
    programs = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(count)]
    try:
        yield
    finally:
        for program in programs:
            program.kill()
            program.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
