"""Whether a table is still the one that a load began with. Pure.

Owns: which error says what has changed, wherever it is noticed: MetadataChanged if the table is the
same one with another schema or other attributes, ProtocolChanged if its tablets are others, or have
dropped what was staged.
"""

from dodona._core.loads.ticket import LoadTable
from dodona._core.protocol.context import Context, not_mounted
from dodona._core.protocol.routing import UNMOUNTED, TableRoute
from dodona._core.protocol.steps import Protocol
from dodona_wire.errors import DodonaError, MetadataChanged, ProtocolChanged, TableNotFound
from dodona_wire.messages.catalog import Tablet


def route_of(context: Context, table: LoadTable) -> Protocol[TableRoute]:
    """Where the table is now. Raises MetadataChanged, ProtocolChanged."""
    context.routing.forget(table.path)
    try:
        route = yield from context.route(table.path)
    except TableNotFound as error:
        text = "the table was removed while the load was under way"
        raise ProtocolChanged(text, table=table.path) from error
    if tuple([tablet.tablet for tablet in route.tablets]) != table.tablets:
        text = "the table was resharded, or made anew, while the load was under way"
        raise ProtocolChanged(text, table=table.path)
    if tuple(route.schema.columns) != table.columns:
        text = "the table was altered while the load was under way"
        raise MetadataChanged(text, table=table.path)
    if table.settings is not None and route.settings != table.settings:
        text = "the table's attributes were changed while the load was under way"
        raise MetadataChanged(text, table=table.path)
    return route


def refusal_of(route: TableRoute, tablet: Tablet) -> DodonaError:
    """Why a tablet takes nothing of a load: it was unmounted, and has dropped what was staged, or
    is frozen for now."""
    if tablet.state == UNMOUNTED:
        text = "the table was unmounted while the load was under way: what was staged is gone"
        return ProtocolChanged(text, table=route.path, tablet=tablet.tablet)
    return not_mounted(route, tablet, is_write=True)


def explain(context: Context, table: LoadTable, error: DodonaError) -> Protocol[DodonaError]:
    """What a table that takes no rows of a load is refused with: what has become of the table, or
    else the error itself."""
    try:
        route = yield from route_of(context, table)
    except (MetadataChanged, ProtocolChanged) as changed:
        return changed
    number = error.attributes.get("tablet")
    for tablet in route.tablets:
        if tablet.tablet == number:
            return refusal_of(route, tablet) if tablet.state == UNMOUNTED else error
    return error
