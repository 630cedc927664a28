"""Items of the catalogue that can't be planted: Dodona has nothing that could break like that."""

from negative.bug import Excuse

EXCUSES = (
    Excuse(
        21,
        "a replica's read does not move the leader's largest read timestamp",
        "each cell has one copy, which answers all reads. There are no replicas",
    ),
    Excuse(
        47,
        "a repeated Spark task sends a batch again after newer writes",
        "a batch names its load, but has no number in the load. So a cell can't refuse a repeated "
        "batch: that batch is a write like any other. The part about a wrong clock is planted",
    ),
)
