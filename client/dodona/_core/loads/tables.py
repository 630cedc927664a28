"""Check that a table is still the one with which a load began. Pure.

Owns: which error reports the change, wherever it is found. MetadataChanged: it is the same table
with another schema or other attributes. ProtocolChanged: it has other tablets, or its tablets have
dropped the staged rows.
"""

from dodona._core.loads.ticket import LoadTable
from dodona._core.protocol.context import Context, not_mounted
from dodona._core.protocol.routing import UNMOUNTED, TableRoute
from dodona._core.protocol.steps import Protocol
from dodona_wire.errors import DodonaError, MetadataChanged, ProtocolChanged, TableNotFound
from dodona_wire.messages.catalog import Tablet


def route_of(context: Context, table: LoadTable) -> Protocol[TableRoute]:
    """Return the table's current route. Raises MetadataChanged, ProtocolChanged."""
    context.routing.forget(table.path)
    try:
        route = yield from context.route(table.path)
    except TableNotFound as error:
        text = "The table was removed during the load. Check the path, then begin a new load."
        raise ProtocolChanged(text, table=table.path) from error
    if tuple([tablet.tablet for tablet in route.tablets]) != table.tablets:
        text = "The table was resharded or created again during the load. Begin a new load."
        raise ProtocolChanged(text, table=table.path)
    if tuple(route.schema.columns) != table.columns:
        text = "The table was altered during the load. Check its schema, then begin a new load."
        raise MetadataChanged(text, table=table.path)
    if route.settings != table.settings:
        text = "The table's attributes changed during the load. Check them, then begin a new load."
        raise MetadataChanged(text, table=table.path)
    return route


def refusal_of(route: TableRoute, tablet: Tablet) -> DodonaError:
    """Return why a tablet takes no rows of a load. Either it was unmounted and dropped the staged
    rows, or it is frozen for now."""
    if tablet.state == UNMOUNTED:
        text = (
            "The table was unmounted during the load, which removed the staged rows. Mount the "
            "table, then begin a new load."
        )
        return ProtocolChanged(text, table=route.path, tablet=tablet.tablet)
    return not_mounted(route, tablet, is_write=True)


def explain(context: Context, table: LoadTable, error: DodonaError) -> Protocol[DodonaError]:
    """Return the error for a table that refuses rows of a load: the change of the table if there is
    one, otherwise `error`."""
    try:
        route = yield from route_of(context, table)
    except (MetadataChanged, ProtocolChanged) as changed:
        return changed
    number = error.attributes.get("tablet")
    for tablet in route.tablets:
        if tablet.tablet == number:
            return refusal_of(route, tablet) if tablet.state == UNMOUNTED else error
    return error
