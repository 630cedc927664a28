"""`python -m mutation.judge MODULE TEST...`: the tests that judge one mutant in a new process.

Exit status 0 if all pass. Runs inside the copy of the checkout, where the mutant is on the disk:
for those that show while a module is imported; a `bench` judges the others. Unit tests come first,
then short runs of the simulator, which take longer. Must not import any core before the tests do: a
mutant may break the import itself.
"""

import sys
from collections.abc import Sequence

import pytest

from mutation.plan import Seed, seeds_of

OPTIONS = (
    "-x",
    "-q",
    "--no-header",
    "--tb=line",
    "-pno:cacheprovider",
    "-pno:xdist",
    "-mnot integration and not alone and not spark",
)


def main(arguments: Sequence[str]) -> int:
    module, *files = arguments
    return test(files) or simulate_all(module)


def test(files: Sequence[str]) -> int:
    """Pytest's status; 0 where no file has tests for it."""
    return int(pytest.main([*OPTIONS, *files])) if files else 0


def simulate_all(module: str) -> int:
    """1 at the first run with a violation."""
    return 0 if all(map(holds, seeds_of(module))) else 1


def holds(it: Seed) -> bool:
    """Whether a short run of the simulator has no violation."""
    from simulator.simulation import simulate

    violations = simulate(it.seed, it.seconds, it.workload).violations
    for violation in violations[:1]:
        print(violation)
    return not violations


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
