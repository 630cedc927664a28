"""`python -m early_lock_model`: search all configurations, and then with each planted bug.

Exit status 1 if a promise was broken without a bug, a bug was not found, or a request starves.
"""

import sys

from early_lock_model.cases import CASES, endless
from early_lock_model.endings import starved
from early_lock_model.model import EarlyLockModel
from early_lock_model.planted import BUGS, Open
from replication_model.explorer import Found, explore


def main() -> int:
    is_right = True
    for case in CASES:
        found = explore(EarlyLockModel(case))
        is_right = is_right and found.is_complete
        print(f"{case.title}: {found.state_count:,} states")
        _show(found.trace, found.violation)
    for bug in BUGS:
        found = explore(bug.make())
        is_right = is_right and _is_found(found, bug.promise)
        print(f"planted: {bug.title}")
        _show(found.trace, found.violation)
    return 0 if is_right and _is_starving_found() else 1


def _is_found(found: Found, promise: str) -> bool:
    return found.violation is not None and found.violation.startswith(promise)


def _is_starving_found() -> bool:
    print(endless().title)
    if starved(EarlyLockModel(endless()), 0) is not None:
        return False
    found = starved(EarlyLockModel(endless(), Open()), 0)
    if found is None:
        return False
    print("planted: a request that waits for commits does not close its rows")
    _show(found.trace, f"STARVING: T0 waits, and the last {found.round_length} steps come again")
    return True


def _show(trace: tuple[str, ...], violation: str | None) -> None:
    if violation is None:
        return
    for number, text in enumerate(trace, 1):
        print(f"{number:3}  {text}")
    print(f"     {violation}")


if __name__ == "__main__":
    sys.exit(main())
