"""Choose the Python that Spark's workers run.

Owns: the default, in the environment. It must be set before a session starts, because Spark reads
it there once. Without it, Spark runs the first `python3` on PATH, which may not have Dodona.
"""

import os
import sys
from typing import Final

VARIABLE: Final = "PYSPARK_PYTHON"


def choose_this_python() -> None:
    """Choose the Python of this process, unless the environment names another one."""
    os.environ.setdefault(VARIABLE, sys.executable)
