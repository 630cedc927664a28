"""`python -m dodona_loadtest.verify URL`: a workload on a running cluster, and its verdict.

It makes the workload's tables, which must not exist yet, and runs sessions side by side. Then it
dumps all versions through the public API, and the checkers judge them. After a violation the exit
status is 1, and the tables stay for inspection. Otherwise they are removed.
"""

import argparse
import asyncio
import secrets
import sys
from collections.abc import Awaitable, Callable, Sequence

from dodona_loadtest.harness.ending import end_in_order
from dodona_loadtest.live.phases import NotLive, TablesInTheWay
from dodona_loadtest.live.run import Order, Report, Run
from dodona_loadtest.workloads import WORKLOADS
from dodona_wire.errors import DodonaError


async def verify(order: Order, meanwhile: Callable[[], Awaitable[None]] | None = None) -> Report:
    """Run and judge. Sessions continue until `meanwhile` is over; the default is to let the time
    pass. Raises DodonaError, TablesInTheWay, NotLive."""
    run = Run(order)
    try:
        await run.begin()
        async with asyncio.TaskGroup() as sessions:
            for _ in range(order.session_count):
                sessions.create_task(run.session_group.use(run.new_session()))
            await (meanwhile() if meanwhile else asyncio.sleep(order.seconds))
            run.session_group.end()
        return await run.finish()
    finally:
        await run.session_group.close()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m dodona_loadtest.verify", description=__doc__.splitlines()[0]
    )
    parser.add_argument("url", help="the master's, such as http://127.0.0.1:8500")
    parser.add_argument("--workload", choices=sorted(WORKLOADS), default="bank")
    parser.add_argument("--seconds", type=float, default=30.0, help="default: 30")
    parser.add_argument("--sessions", type=int, default=16, help="side by side; default: 16")
    parser.add_argument("--think-ms", type=float, default=5.0, help="mean pause; default: 5")
    parser.add_argument("--seed", type=int, help="of what sessions want to do; default: any")
    return parser


def main(command: Sequence[str] | None = None) -> int:
    """Run the command. Return the exit status."""
    parser = _parser()
    given = parser.parse_args(command)
    if given.seconds <= 0 or given.sessions < 1 or given.think_ms < 0:
        parser.error("--seconds and --sessions must be positive, --think-ms not negative")
    seed = secrets.randbelow(1 << 32) if given.seed is None else given.seed
    order = Order(given.url, given.workload, seed, given.seconds, given.sessions, given.think_ms)
    try:
        report = asyncio.run(verify(order))
    except (DodonaError, NotLive, TablesInTheWay) as error:
        print(f"verify: {error}", file=sys.stderr)
        return 2
    print("\n".join(report.lines()))
    return 1 if report.violations else 0


if __name__ == "__main__":
    end_in_order()
    sys.exit(main())
