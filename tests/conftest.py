"""What all tests have in common: examples of properties may take as long as they take.

A deadline would make a slow machine fail tests that say nothing about time.
"""

from hypothesis import settings

settings.register_profile("untimed", settings(), deadline=None)
settings.load_profile("untimed")
