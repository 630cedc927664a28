"""Back up tables into a folder of Arrow files, all as of one timestamp, and restore them.

    from dodona_local.backup import back_up, restore

    with dodona.connect(url) as db:             # or dodona.open(folder)
        back_up(db, "./monday")
        restore(db, "./monday", ["//bank/accounts"])

Owns: the two commands `dodona backup` and `dodona restore`, through the client's public API.
"""

from dodona_local.backup.making import back_up
from dodona_local.backup.manifest import Manifest
from dodona_local.backup.restoring import restore

__all__ = ["Manifest", "back_up", "restore"]
