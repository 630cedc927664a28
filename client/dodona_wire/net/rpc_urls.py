"""Make the URL of a server's data plane, with the wire version that this process speaks.

Must not import: a library of a network.
"""

from urllib.parse import urlencode, urlsplit

from dodona_wire.messages.codec import WIRE_VERSION
from dodona_wire.types import CellId


def rpc_url(address: str, cell: CellId | None = None) -> str:
    """Return the URL of the data plane at an address, which is `host:port` or an http(s) URL."""
    parts = urlsplit(address if "://" in address else f"http://{address}")
    scheme = "wss" if parts.scheme in ("https", "wss") else "ws"
    host = parts.netloc.rpartition("@")[2]  # messages must not show a password
    query = {"version": WIRE_VERSION} if cell is None else {"cell": cell, "version": WIRE_VERSION}
    return f"{scheme}://{host}{parts.path.rstrip('/')}/rpc?{urlencode(query)}"
