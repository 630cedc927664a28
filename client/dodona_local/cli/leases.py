"""Acquire, renew, release and show named leases: `dodona lease`.

Owns: their arguments, and the state of a lease in words.
"""

from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from dodona_local.cli.extras import require_extras
from dodona_local.cli.options import MASTER_URL, DataDir, Form, Format, Url
from dodona_local.cli.running import client_of

if TYPE_CHECKING:
    from dodona import Lease

LEASE_MS: Final = 30_000
LEASE_MS_MAX: Final = 86_400_000
EPOCH_MAX: Final = (1 << 63) - 1
"""All three are the same as in `dodona._core`, which `--help` need not load."""

commands = typer.Typer(no_args_is_help=True, help="Acquire, renew, release and show named leases.")

LeaseTable = Annotated[str, typer.Argument(help="Path of the table of leases.")]
Name = Annotated[str, typer.Argument(help="Name of the lease.")]
Owner = Annotated[str, typer.Option(help="Text that names the owner.")]
Epoch = Annotated[
    int, typer.Option(min=1, max=EPOCH_MAX, help="Epoch of the lease, as `acquire` prints it.")
]
LeaseMs = Annotated[
    int,
    typer.Option(
        min=1, max=LEASE_MS_MAX, help="How long no other owner can acquire the lease, in ms."
    ),
]


@commands.command("create-table")
def create_table(path: LeaseTable, url: Url = MASTER_URL, data_dir: DataDir = None) -> None:
    """Create a table for leases, and mount it. A table of leases that exists is no error."""
    require_extras("server")
    with client_of(url, data_dir, is_made=True) as db:
        db.leases.create_table(path)


@commands.command()
def acquire(
    path: LeaseTable,
    name: Name,
    owner: Owner,
    lease_ms: LeaseMs = LEASE_MS,
    url: Url = MASTER_URL,
    data_dir: DataDir = None,
    form: Form = Format.TABLE,
) -> None:
    """Acquire a lease that is new, released or expired, and print it. If another owner has it, the
    exit code is 3."""
    require_extras("server")
    with client_of(url, data_dir) as db:
        lease = db.leases.acquire(path, name, owner, lease_ms)
    values = {"table": path, "name": name, "owner": owner, "epoch": lease.epoch}
    _print_one(form, values, ("utf8", "utf8", "utf8", "int64"))


@commands.command()
def renew(
    path: LeaseTable,
    name: Name,
    owner: Owner,
    epoch: Epoch,
    lease_ms: LeaseMs = LEASE_MS,
    url: Url = MASTER_URL,
    data_dir: DataDir = None,
) -> None:
    """Renew a lease. If it is lost, the exit code is 1."""
    require_extras("server")
    with client_of(url, data_dir) as db:
        db.leases.renew(_lease(path, name, owner, epoch), lease_ms)


@commands.command()
def release(
    path: LeaseTable,
    name: Name,
    owner: Owner,
    epoch: Epoch,
    url: Url = MASTER_URL,
    data_dir: DataDir = None,
) -> None:
    """Release a lease, so that others can acquire it now. If it is lost, the exit code is 1."""
    require_extras("server")
    with client_of(url, data_dir) as db:
        db.leases.release(_lease(path, name, owner, epoch))


@commands.command()
def show(
    path: LeaseTable,
    name: Name,
    url: Url = MASTER_URL,
    data_dir: DataDir = None,
    form: Form = Format.TABLE,
) -> None:
    """Print the owner, the epoch and the expiry of a lease, and whether it is held, expired or
    released."""
    require_extras("server")
    from dodona_wire.errors import RowNotFound

    with client_of(url, data_dir) as db:
        now = db.generate_timestamp()
        columns = ["owner", "epoch", "expires"]
        found = db.lookup_rows(path, [{"name": name}], columns, timestamp=now)
    if not found:
        text = f"There is no lease {name!r} yet. Acquire it first."
        raise RowNotFound(text, table=path, key={"name": name})
    values = {"table": path, "name": name, **found[0], "state": _state_of(found[0], now)}
    _print_one(form, values, ("utf8", "utf8", "utf8", "int64", "uint64", "utf8"))


def _lease(path: str, name: str, owner: str, epoch: int) -> "Lease":
    from dodona import Lease

    return Lease(path, name, owner, epoch)


def _state_of(row: dict[str, Any], now: int) -> str:
    if row["owner"] is None:
        return "released"
    return "held" if (row["expires"] or 0) > now else "expired"


def _print_one(form: Format, values: dict[str, Any], types: tuple[str, ...]) -> None:
    from dodona_local.cli.printing import print_json, print_list
    from dodona_wire.rows.schema import Column

    if form is Format.JSON:
        print_json(values)
        return
    columns = [Column(name, kind) for name, kind in zip(values, types, strict=True)]
    print_list(form, columns, [tuple(values.values())])
