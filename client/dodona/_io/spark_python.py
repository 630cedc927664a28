"""Which Python Spark's workers run.

Owns: the default, set in the environment before a session starts: Spark reads it there once. It
runs `python3` otherwise, whichever comes first on PATH, and that one need not have Dodona.
"""

import os
import sys
from typing import Final

VARIABLE: Final = "PYSPARK_PYTHON"


def choose_this_python() -> None:
    """Unless the environment says another."""
    os.environ.setdefault(VARIABLE, sys.executable)
