"""Row 6: durable commits of one row inside the caller's process."""

from typing import Final

from dodona_loadtest.harness.row import Contender, Row
from dodona_loadtest.peers import dodona, engines

ROW: Final = Row(
    name="embedded",
    title="Embedded durable commits of one row: threads of one process",
    fairness=(
        "All synced to disk before the call returns. SQLite is in WAL mode with synchronous=FULL, "
        "LMDB a bare put: neither keeps versions or hands out timestamps."
    ),
    contenders=(
        Contender("Dodona embedded", dodona.open_embedded),
        Contender("SQLite", engines.open_sqlite),
        Contender("LMDB", engines.open_lmdb),
    ),
    callers=(1, 16),
    callers_quick=(1, 16),
)
