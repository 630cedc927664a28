"""Requests to a cell that are not commits: reads, writes without atomicity, bulk batches, loads."""
