"""`python -m serializable_model`: search all configurations, and then with each planted bug. With
`--large`, search only the larger configurations. With `--again`, search those in which a
transaction that was refused is sent again.

Exit status 1 if a promise was broken without a bug, or a bug was not found.
"""

import sys
from collections.abc import Sequence

from replication_model.explorer import Found, explore
from serializable_model.attempts import AGAIN, LARGE_AGAIN
from serializable_model.cases import CASES, LARGE
from serializable_model.model import SerializableModel
from serializable_model.planted import BUGS, PlantedBug
from serializable_model.planted_again import AGAIN_BUGS
from serializable_model.state import Case


def main() -> int:
    is_again = "--again" in sys.argv[1:]
    if "--large" in sys.argv[1:]:
        return 0 if _are_kept(LARGE_AGAIN if is_again else LARGE) else 1
    cases, bugs = (AGAIN, AGAIN_BUGS) if is_again else (CASES, BUGS)
    return 0 if _are_kept(cases) & _are_found(bugs) else 1


def _are_kept(cases: Sequence[Case]) -> bool:
    is_right, state_count, depth, seconds = True, 0, 0, 0.0
    for case in cases:
        found = explore(SerializableModel(case))
        is_right = is_right and found.is_complete
        state_count += found.state_count
        depth, seconds = max(depth, found.depth), seconds + found.seconds
        print(f"{case.title}: {found.state_count:,} states")
        _show(found)
    print(f"{len(cases)} configurations, {state_count:,} states, at most {depth} steps deep")
    print(f"in {seconds:.0f} s of processor time")
    return is_right


def _are_found(bugs: Sequence[PlantedBug]) -> bool:
    is_right, seconds = True, 0.0
    lengths = []
    for bug in bugs:
        found = explore(bug.make())
        is_right = is_right and (found.violation or "").startswith(bug.promise)
        seconds += found.seconds
        lengths.append(len(found.trace))
        print(f"planted: {bug.title}")
        _show(found)
    print(f"{len(bugs)} bugs, found after {min(lengths)} to {max(lengths)} steps")
    print(f"in {seconds:.0f} s of processor time")
    return is_right


def _show(found: Found) -> None:
    if found.violation is None:
        return
    for number, text in enumerate(found.trace, 1):
        print(f"{number:3}  {text}")
    print(f"     {found.violation}")


if __name__ == "__main__":
    sys.exit(main())
