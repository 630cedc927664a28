"""Every message of the data plane and of the catalog. Frozen, without behaviour, no I/O.

There are three families:

- Requests and their replies. A reply answers one request.
- Cell messages. They go one way, between cells, and each names its sender.
- Catalog requests. They travel as REST between processes, except heartbeats. In the simulator and
  in an embedded database they travel as they are.

A message is a MessagePack array that begins with its number (see `codec`). Numbers are never used
again.
"""
