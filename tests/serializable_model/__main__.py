"""`python -m serializable_model`: search all configurations, and then with each planted bug.

Exit status 1 if a promise was broken without a bug, or a bug was not found.
"""

import sys

from replication_model.explorer import Found, explore
from serializable_model.cases import CASES
from serializable_model.model import SerializableModel
from serializable_model.planted import BUGS


def main() -> int:
    is_right, state_count, depth, seconds = True, 0, 0, 0.0
    for case in CASES:
        found = explore(SerializableModel(case))
        is_right = is_right and found.is_complete
        state_count += found.state_count
        depth, seconds = max(depth, found.depth), seconds + found.seconds
        print(f"{case.title}: {found.state_count:,} states")
        _show(found)
    print(f"{len(CASES)} configurations, {state_count:,} states, at most {depth} steps deep")
    for bug in BUGS:
        found = explore(bug.make())
        is_right = is_right and (found.violation or "").startswith(bug.promise)
        seconds += found.seconds
        print(f"planted: {bug.title}")
        _show(found)
    print(f"{len(BUGS)} planted bugs. All searches took {seconds:.0f} s")
    return 0 if is_right else 1


def _show(found: Found) -> None:
    if found.violation is None:
        return
    for number, text in enumerate(found.trace, 1):
        print(f"{number:3}  {text}")
    print(f"     {found.violation}")


if __name__ == "__main__":
    sys.exit(main())
