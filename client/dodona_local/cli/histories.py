"""Print the history of rows: `dodona versions`.

Owns: its arguments, and how versions become lines. The caller asks for further pages: a line for
each key with older versions says how.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dodona_local.cli.extras import require_extras
from dodona_local.cli.options import (
    MASTER_URL,
    Columns,
    DataDir,
    Form,
    Format,
    TablePath,
    Url,
)
from dodona_local.cli.rows import PANEL
from dodona_local.cli.running import client_of, warn

if TYPE_CHECKING:
    from dodona._core.reading.versions import VersionedRow

LIMIT = 1_000
commands = typer.Typer()

Since = Annotated[
    str | None, typer.Option(help="Only versions after this timestamp, or time with its zone.")
]
Below = Annotated[
    str | None, typer.Option(help="Only versions before this timestamp, or time with its zone.")
]
Limit = Annotated[int, typer.Option(min=1, help="Number of newest versions of each key.")]


@commands.command(rich_help_panel=PANEL)
def versions(
    path: TablePath,
    key: Annotated[
        list[str], typer.Argument(help="A key: JSON, or id=7,name=x.", metavar="KEY...")
    ],
    columns: Columns = None,
    since: Since = None,
    below: Below = None,
    limit: Limit = LIMIT,
    url: Url = MASTER_URL,
    data_dir: DataDir = None,
    form: Form = Format.TABLE,
) -> None:
    """Print the kept versions of the rows of these keys, newest first."""
    require_extras("server")

    from dodona._core.reading.changes import CHANGE_TYPE, COLUMNS, TIMESTAMP
    from dodona._core.reading.reading import Projection
    from dodona_local.cli.printing import print_rows
    from dodona_local.cli.words import keys_of, names_of, timestamp_of
    from dodona_local.files.formatting import Shape
    from dodona_wire.rows.arrow import arrow_of_tuples
    from dodona_wire.rows.schema import Column
    from dodona_wire.shown import shown
    from dodona_wire.types import NULL_TIMESTAMP

    after = NULL_TIMESTAMP if since is None else timestamp_of(since)
    before = None if below is None else timestamp_of(below)
    with client_of(url, data_dir) as db:
        schema = db.get_table(path).schema
        wanted = Projection(schema, names_of(columns)).columns
        names = [it.name for it in wanted]
        asked = keys_of(schema, key)
        rows = db.lookup_versions(path, asked, names, since=after, below=before, limit=limit)
    marks = ((TIMESTAMP, "uint64"), (CHANGE_TYPE, "utf8"), (COLUMNS, "utf8"))
    heads = [Column(name, kind) for name, kind in marks]
    plain = [Column(it.name, it.type) for it in wanted]
    lines = [line for row in rows for line in _lines_of(row, names)]
    batches = arrow_of_tuples([*heads, *plain], lines).to_batches()
    print_rows(form, Shape.of_columns([*heads, *plain]), batches)
    for row in rows:
        if row.more_below is not None:
            warn(f"{shown(row.key)} has older versions: go on with --below {row.more_below}")


def _lines_of(row: "VersionedRow", names: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """Yield a line for each version: its timestamp, its kind, the names of its columns, the key and
    the values. A column that the version did not write is null."""
    given: dict[int, dict[str, Any]] = {}
    for name, values in row.values.items():
        for it in values:
            given.setdefault(it.timestamp, {})[name] = it.value
    kinds = dict.fromkeys(row.write_timestamps, "write") | dict.fromkeys(
        row.delete_timestamps, "delete"
    )
    for at in sorted(kinds, reverse=True):
        values_at = given.get(at, {})
        cells = [row.key.get(name, values_at.get(name)) for name in names]
        yield (at, kinds[at], ",".join(values_at), *cells)
