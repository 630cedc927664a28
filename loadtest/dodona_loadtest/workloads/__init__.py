"""What callers do in a run: each workload has tables, a setup, a step, a last write and a check."""

from dodona_loadtest.workloads.bank import Bank
from dodona_loadtest.workloads.blind import Blind
from dodona_loadtest.workloads.cycle import Cycle
from dodona_loadtest.workloads.workload import Workload

WORKLOADS: dict[str, type[Workload]] = {"bank": Bank, "blind": Blind, "cycle": Cycle}

__all__ = ["WORKLOADS", "Bank", "Blind", "Cycle", "Workload"]
