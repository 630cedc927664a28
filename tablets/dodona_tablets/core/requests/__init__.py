"""What a cell is asked besides commits: reads, writes without atomicity, bulk batches, loads."""
