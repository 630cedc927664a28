"""What was acknowledged of a replicated log, and what a read of it may show.

Owns: `Truth`, which compares. A *chain* is a hash of an entry and of all entries before it.
Must not import: any product.
"""

import hashlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass
class Truth:
    """What was acknowledged, by whomever, and what broke a promise."""

    chains: dict[int, str] = field(default_factory=lambda: {0: ""})
    last_index: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)

    def acknowledge(self, who: str, index: int, chain: str) -> None:
        self.counts["acknowledged"] += 1
        if self.chains.setdefault(index, chain) != chain:
            self.faults.append(f"{who} acknowledges another entry {index} than was acknowledged")
        self.last_index = max(self.last_index, index)

    def read(
        self, who: str, index: int, chain_at: Callable[[int], str | None], last: int | None = None
    ) -> None:
        """A process shows its log up to this index. `last`: what was acknowledged when it was
        asked, if that was earlier."""
        self.counts["reads"] += 1
        last = self.last_index if last is None else last
        if index < last or chain_at(last) != self.chains[last]:
            self.faults.append(f"{who} reads up to {index}, but {last} is acknowledged, or differs")


def chained(before: str, records: bytes) -> str:
    return hashlib.sha256(before.encode() + records).hexdigest()[:16]
