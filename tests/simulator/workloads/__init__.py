"""What callers do in a run: each workload has tables, a setup, a step, a last write and a check."""

from simulator.workloads.bank import Bank
from simulator.workloads.blind import Blind
from simulator.workloads.cycle import Cycle
from simulator.workloads.workload import Workload

WORKLOADS: dict[str, type[Workload]] = {"bank": Bank, "blind": Blind, "cycle": Cycle}

__all__ = ["WORKLOADS", "Bank", "Blind", "Cycle", "Workload"]
