"""Parts that all rows share: client processes, rounds, statistics, the machine and the report."""
