"""Load tests by Locust: its users, what they are told to do, and what becomes of it."""
