"""What has to go once it is old, and what must not be done again and again for it.

Owns: how long a table may keep rows that its settings let go, once nothing happens any more, and
the promise that cells come to rest then: no chunk is written again and again. A cell that keeps
such rows mostly does both: it takes a chunk for worth cleaning, and leaves all of it.
"""

from collections.abc import Sequence
from typing import Final

from dodona_loadtest.checkers.violation import Violation
from dodona_loadtest.histories.shape import TableShape
from simulator.cluster import Cluster
from simulator.world import World

SECOND_US: Final = 1_000_000
GO_US_MAX: Final = 30 * SECOND_US
"""The longest age, the life of transactions, a flush, a renewal, and looks at the chunks."""
REST_US: Final = 6 * SECOND_US
"""In so long each chunk is looked at several times."""
RESTS_MAX: Final = 3


def judge(world: World, cluster: Cluster, tables: Sequence[TableShape]) -> list[Violation]:
    """Let time pass until all rows of these tables are gone and nothing is rewritten. → what was
    not so after the time for it."""
    if not tables:
        return []
    paths = {table.path for table in tables}
    return [*_kept(world, cluster, paths), *_rewritten(world, cluster)]


def _kept(world: World, cluster: Cluster, paths: set[str]) -> list[Violation]:
    # Rows age as timestamps go on, and those wait for a clock that stepped back.
    deadline_us = world.now_us + cluster.timestamps_ahead_us() + GO_US_MAX
    while left := [it.row for it in cluster.dump() if it.row.table in paths]:
        if world.now_us >= deadline_us:
            text = f"{len(left)} rows are there long after their time, such as {left[0]}"
            return [Violation("LIVENESS", text)]
        world.run_until(world.now_us + 2 * SECOND_US)
    return []


def _rewritten(world: World, cluster: Cluster) -> list[Violation]:
    """There is always some compaction under way that ends: not one in each span."""
    for _ in range(RESTS_MAX):
        before = cluster.compaction_count()
        world.run_until(world.now_us + REST_US)
        if cluster.compaction_count() == before:
            return []
    text = f"chunks are still compacted after {RESTS_MAX * REST_US // SECOND_US} s without writes"
    return [Violation("LIVENESS", text)]
