"""What of the catalogue can't be planted, because there is nothing yet that could break so."""

from negative.bug import Excuse

EXCUSES = (
    Excuse(
        21,
        "a replica's read does not move the leader's largest read timestamp",
        "a cell has one copy, and only it answers reads: there are no replicas",
    ),
    Excuse(
        47,
        "a task that Spark repeats sends a batch again after newer writes",
        "batches carry no number of their load, so that none can be turned away: a repeated batch "
        "is a write like any other. Stamps of a clock that is off are planted",
    ),
)
