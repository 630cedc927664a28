"""What every benchmark row shares: client processes, rounds, statistics, machine and report."""
