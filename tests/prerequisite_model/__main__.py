"""`python -m prerequisite_model`: search all configurations, and then with each planted bug.

Exit status 1 if a promise was broken without a bug, or a bug was not found.
"""

import sys

from prerequisite_model.cases import CASES
from prerequisite_model.model import PrerequisiteModel
from prerequisite_model.planted import BUGS
from replication_model.explorer import Found, explore


def main() -> int:
    is_right = True
    for case in CASES:
        found = explore(PrerequisiteModel(case))
        is_right = is_right and found.is_complete
        print(f"{case.title}: {found.state_count:,} states")
        _show(found)
    for bug in BUGS:
        found = explore(bug.make())
        is_right = is_right and found.violation is not None
        print(f"planted: {bug.title}")
        _show(found)
    return 0 if is_right else 1


def _show(found: Found) -> None:
    if found.violation is None:
        return
    for number, text in enumerate(found.trace, 1):
        print(f"{number:3}  {text}")
    print(f"     {found.violation}")


if __name__ == "__main__":
    sys.exit(main())
