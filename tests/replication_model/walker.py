"""Random walks through the replicated log, with more of everything than a search can have.

Owns: the bounds of the walks, and how the next step is drawn. A seed decides a walk. A walk proves
nothing: it looks where no complete search gets. Must not import: planted bugs.
"""

import random
from dataclasses import dataclass
from typing import Final

from replication_model.bounds import Bounds
from replication_model.log_model import LogModel
from replication_model.rules import Rules

STEPS_MAX: Final = 400
RARE: Final = ("a process takes over", "the disk")
"""Beginnings of actions. Drawn as often as others, they would use up their bounds early."""
REDRAWN: Final = 0.8

WALKS: Final = (
    Bounds(
        "3 replicas and 3 spares",
        replica_count=6,
        epoch_count=8,
        write_count=12,
        loss_count=2,
        outstanding_max=3,
        lease_ticks=2,
        wait_ticks=2,
        may_release=True,
    ),
    Bounds(
        "5 replicas and 2 spares, copies_min 3",
        replica_count=7,
        member_count=5,
        member_count_max=5,
        copies_min=3,
        epoch_count=8,
        write_count=12,
        loss_count=3,
        outstanding_max=2,
        splits_compares=True,
    ),
    Bounds(
        "3 replicas and 2 spares, explicit pings",
        replica_count=5,
        epoch_count=8,
        write_count=12,
        loss_count=1,
        outstanding_max=2,
        lease_ticks=3,
        wait_ticks=3,
        has_pings=True,
        may_release=True,
    ),
    Bounds(
        "3 replicas and 2 spares, the log is cut",
        replica_count=5,
        epoch_count=8,
        write_count=12,
        loss_count=2,
        outstanding_max=3,
        may_cut=True,
    ),
)


@dataclass(frozen=True, slots=True)
class Walk:
    """What one seed came to."""

    title: str
    seed: int
    step_count: int
    violation: str | None
    trace: tuple[str, ...]


def walk(seed: int, rules: type[Rules] = Rules) -> Walk:
    """Walk from the first state, until nothing can happen or a promise is broken."""
    bounds = WALKS[seed % len(WALKS)]
    model, draw = LogModel(bounds, rules), random.Random(seed)
    state, texts = model.first(), list[str]()
    violation: str | None = None
    while violation is None and len(texts) < STEPS_MAX and (steps := [*model.steps(state)]):
        step = draw.choice(steps)
        if step.action.startswith(RARE) and draw.random() < REDRAWN:
            step = draw.choice(steps)
        texts.append(step.text)
        violation = step.violation or model.violation(step.state)
        state = step.state
    return Walk(bounds.title, seed, len(texts), violation, tuple(texts))
