"""What callers of a database did and saw, for `checkers` to judge, and the code that records it."""
