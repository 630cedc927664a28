"""Hunts side by side, each in a process of its own: what is planted there is planted nowhere else.

Owns: how a bug is named to another process: by its place among all.
"""

import os
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from dodona._core.protocol.context import Acknowledgement
from negative.bug import CheckedBug
from negative.hunt import Catch, check, hunt
from negative.planted import BUGS


def start_workers(count: int | None = None) -> ProcessPoolExecutor:
    """As many as there are cores, or so many."""
    return ProcessPoolExecutor(count or len(os.sched_getaffinity(0)), get_context("spawn"))


def hunt_at(place: int, acknowledgement: Acknowledgement | None) -> Catch | None:
    bug = BUGS[place]
    return check(bug) if isinstance(bug, CheckedBug) else hunt(bug, acknowledgement)
