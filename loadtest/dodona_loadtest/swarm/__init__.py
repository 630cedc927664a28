"""Load tests by Locust: its users, their options, and the verdict."""
