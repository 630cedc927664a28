"""What a planted bug of the model is.

Owns: the record that the chapters are made of. A bug breaks one rule, and a search of one small
configuration must find what a user could see of it. Must not import: a chapter.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from replication_model.bounds import Bounds
from replication_model.explorer import Model
from replication_model.log_model import LogModel
from replication_model.rules import Rules


@dataclass(frozen=True, slots=True)
class PlantedBug:
    """One way to break a rule, and the model that has it."""

    rule: str
    title: str
    make: Callable[[], Model]

    @property
    def name(self) -> str:
        return f"{self.rule}: {self.title}"


def log_bug(rule: str, title: str, rules: type[Rules], bounds: Bounds) -> PlantedBug:
    """Return a bug of the replicated log. The promise about members is off: it is about what is
    inside, and a user must be able to see the bug."""
    visible = replace(bounds, checks_members=False)
    return PlantedBug(rule, title, lambda: LogModel(visible, rules))
