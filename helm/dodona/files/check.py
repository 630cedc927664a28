"""What `helm test` runs, in a pod of its own: does this cluster do what it is for?

Owns: the check. All cells are there, timestamps rise, a transaction over several tablets commits
and is read back, another one of the same row is refused, the gateway serves. Whatever is made is
removed again. The master's URL and the key are in the environment, as for every client. Exit
status: 0 if all is well; else it ends with an error.
"""

import argparse
import os
import ssl
import sys
import time
import urllib.request
import uuid
from collections.abc import Callable

import dodona

SCHEMA = [
    {"name": "key", "type": "int64", "sort_order": "ascending"},
    {"name": "value", "type": "string"},
]
WAIT_S_MAX = 120.0
POLL_S = 0.5


def main(arguments: list[str]) -> None:
    """Raises RuntimeError, DodonaError, OSError."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--cells", type=int, required=True, help="how many there should be")
    parser.add_argument("--gateway", required=True, help="URL")
    options = parser.parse_args(arguments)
    with dodona.connect(os.environ["DODONA_URL"]) as db:
        wait_until("all cells are alive", lambda: count_alive(db) >= options.cells)
        check_timestamps(db)
        path = f"//helm-test-{uuid.uuid4()}"
        tablet_count = 2 * options.cells
        pivot_keys = [[], *([tablet] for tablet in range(1, tablet_count))]
        db.create_table(path, SCHEMA, pivot_keys=pivot_keys, mount=True)
        try:
            check_transactions(db, path, tablet_count)
        finally:
            db.remove_table(path)
    wait_until("the gateway is ready", lambda: is_ready(options.gateway))
    say("all is well")


def count_alive(db: dodona.Client) -> int:
    """Cells that the master has heard of lately."""
    return sum(cell.is_alive for cell in db.get_cluster().cells)


def check_timestamps(db: dodona.Client) -> None:
    """Raises RuntimeError."""
    first, second = db.generate_timestamp(), db.generate_timestamp()
    require(first < second, f"timestamps rise: {first} < {second}")


def check_transactions(db: dodona.Client, path: str, tablet_count: int) -> None:
    """Raises RuntimeError."""
    rows = [{"key": key, "value": b"written by helm test"} for key in range(tablet_count)]
    late = db.begin()
    with db.begin() as transaction:
        transaction.insert_rows(path, rows)
    keys = [{"key": row["key"]} for row in rows]
    found = sorted(db.lookup_rows(path, keys), key=lambda row: row["key"])
    require(found == rows, f"{tablet_count} rows in {tablet_count} tablets are read back")
    late.insert_rows(path, rows[:1])
    try:
        late.commit()
    except dodona.TransactionConflict:
        say("a transaction that began before is refused")
    else:
        raise RuntimeError("two transactions wrote one row at once, and both were committed")


def is_ready(gateway: str) -> bool:
    """Over TLS whatever its certificate is: it is made for callers, who know it by other names, and
    nothing is said here that others may not hear."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with urllib.request.urlopen(f"{gateway}/readyz", timeout=5, context=context) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def wait_until(what: str, is_so: Callable[[], bool]) -> None:
    """Raises RuntimeError when it takes too long."""
    deadline = time.monotonic() + WAIT_S_MAX
    while not is_so():
        require(time.monotonic() < deadline, f"within {WAIT_S_MAX:g} s {what}")
        time.sleep(POLL_S)
    say(what)


def require(is_so: bool, what: str) -> None:
    """Raises RuntimeError."""
    if not is_so:
        raise RuntimeError(f"this is not so: {what}")


def say(line: str) -> None:
    """To standard output, at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
