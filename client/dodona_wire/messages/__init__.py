"""Every message, of the data plane and of the catalog. Frozen, without behaviour, no I/O.

Three families: requests and their replies (a reply answers one request), cell messages (one way,
between cells; each names its sender), and catalog requests, which travel as REST between processes,
but for heartbeats, and as they are in the simulator and in an embedded database. A message is a
MessagePack array that opens with its number (see `codec`): numbers are never reused.
"""
