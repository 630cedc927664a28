"""Serializable transactions of many callers: how many commit, with all their attempts."""

from typing import Final

from dodona_loadtest.harness.row import Contender, Goal, Row
from dodona_loadtest.peers import dodona_serializable, postgres_serializable

PEER: Final = "PostgreSQL, SERIALIZABLE"
FAIRNESS: Final = (
    "All synced to disk before the answer. An operation is a transaction with all its attempts, "
    "and only committed ones count. Those that gave up after 10 s are named below the table. "
    "Dodona calls `run_in_transaction`. PostgreSQL's transactions run again after SQLSTATE 40001 "
    "and 40P01, without a pause. Each check at the end tries to cause write skew, too."
)

BANK_ROW: Final = Row(
    name="serializable-smallbank",
    title="SmallBank in serializable transactions, 100 hot customers of 1,000: one client process",
    fairness=f"{FAIRNESS} The money of all accounts is added up at the end.",
    contenders=(
        Contender("Dodona", dodona_serializable.serve_bank),
        Contender(PEER, postgres_serializable.serve_bank),
    ),
    callers=(1, 32),
    callers_quick=(32,),
    goals=(Goal(32, not_below=PEER, times=1.5),),
)

RECORD_ROW: Final = Row(
    name="serializable-ycsb-f",
    title="Read-modify-writes of YCSB F in serializable transactions: one client process",
    fairness=(
        f"{FAIRNESS} A transaction reads one of 1,000 records, and writes one of its ten fields. "
        "Its key is drawn from a Zipfian distribution of 0.99. F's plain reads are left out. Each "
        "change also adds 1 to a counter of the record, and the counters are added up at the end."
    ),
    contenders=(
        Contender("Dodona", dodona_serializable.serve_records),
        Contender(PEER, postgres_serializable.serve_records),
    ),
    callers=(1, 32),
    callers_quick=(32,),
    goals=(Goal(32, not_below=PEER, times=1.5),),
)
