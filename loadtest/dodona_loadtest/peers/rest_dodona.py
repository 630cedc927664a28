"""Dodona's gateway as a contender: as `dodona up --insecure` starts it.

Owns: the table for the rows, which has one tablet on one node.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import httpx

from dodona_loadtest.peers import dodona
from dodona_loadtest.peers.rest_caller import TABLE

SCHEMA: Final = [
    {"name": "id", "type": "int64", "sort_order": "ascending"},
    {"name": "amount", "type": "double"},
    {"name": "count", "type": "int64"},
    {"name": "note", "type": "utf8"},
]


@contextmanager
def serve(folder: Path) -> Iterator[tuple[int, str]]:
    """Start a server. Yields its port and its name."""
    with dodona.open_cluster(folder, gateway_count=1) as cluster:
        (url,) = cluster.gateway_urls
        made = {"path": TABLE, "schema": SCHEMA, "mount": True}
        httpx.post(f"{url}/v1/tables", json=made, timeout=60).raise_for_status()
        yield urlsplit(url).port or 0, dodona.version()
