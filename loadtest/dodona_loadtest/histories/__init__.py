"""What callers of a database did and saw, for `checkers` to judge, and who writes it down."""
