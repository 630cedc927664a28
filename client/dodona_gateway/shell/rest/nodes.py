"""Read and change the tree over REST: directories, nodes and their attributes.

Owns: these operations, each a few lines over the client, and the roles that they need. To read,
move or remove a directory, a caller needs the role on the whole directory.
"""

from typing import Final

from dodona_gateway.core import answers, requests
from dodona_gateway.core.answers import Done
from dodona_gateway.shell.routes import Call, route
from dodona_wire.messages.attribute_names import names_set, warnings_about


async def create_directory(call: Call, asked: requests.CreateDirectory) -> Done:
    """Create a directory."""
    call.principal.check("admin", asked.path)
    await call.service.client.create_directory(
        asked.path,
        asked.attributes,
        asked.recursive,
        asked.ignore_existing,
        timeout_ms=asked.timeout_ms,
    )
    return Done(warnings_about(asked.attributes or ()))


async def get_node(call: Call, asked: requests.Path) -> answers.Value:
    """Return an attribute, all attributes, or the content of a directory as nested maps."""
    call.principal.check("read", asked.path, subtree=True)
    return answers.Value(await call.service.client.get(asked.path, timeout_ms=asked.timeout_ms))


async def set_node(call: Call, asked: requests.SetNode) -> Done:
    """Set one attribute, or all attributes."""
    call.principal.check("admin", asked.path)
    await call.service.client.set(asked.path, asked.value, timeout_ms=asked.timeout_ms)
    return Done(warnings_about(names_set(asked.path, asked.value)))


async def list_nodes(call: Call, asked: requests.Path) -> answers.Names:
    """Return the names in a directory."""
    call.principal.check("read", asked.path)
    return answers.Names(await call.service.client.list(asked.path, timeout_ms=asked.timeout_ms))


async def node_exists(call: Call, asked: requests.Path) -> answers.Value:
    """Return whether a node or an attribute exists."""
    call.principal.check("read", asked.path)
    return answers.Value(await call.service.client.exists(asked.path, timeout_ms=asked.timeout_ms))


async def remove_node(call: Call, asked: requests.RemoveNode) -> Done:
    """Remove a table with all its rows, a directory, or an attribute."""
    call.principal.check("admin", asked.path, subtree=asked.recursive)
    await call.service.client.remove(
        asked.path, asked.recursive, asked.force, timeout_ms=asked.timeout_ms
    )
    return Done()


async def move_node(call: Call, asked: requests.MoveNode) -> Done:
    """Move a node to another path."""
    call.principal.check("admin", asked.source, subtree=True)
    call.principal.check("admin", asked.destination, subtree=True)
    await call.service.client.move(
        asked.source, asked.destination, asked.recursive, timeout_ms=asked.timeout_ms
    )
    return Done()


async def copy_node(call: Call, asked: requests.MoveNode) -> Done:
    """Copy a node with all its content."""
    call.principal.check("read", asked.source, subtree=True)
    call.principal.check("admin", asked.destination, subtree=True)
    await call.service.client.copy(
        asked.source, asked.destination, asked.recursive, timeout_ms=asked.timeout_ms
    )
    return Done()


ROUTES: Final = (
    route("POST", "/v1/directories", create_directory, "admin", status=201),
    route("GET", "/v1/node", get_node, "read"),
    route("POST", "/v1/node", set_node, "admin"),
    route("DELETE", "/v1/node", remove_node, "admin"),
    route("GET", "/v1/node/list", list_nodes, "read"),
    route("GET", "/v1/node/exists", node_exists, "read"),
    route("POST", "/v1/node/move", move_node, "admin"),
    route("POST", "/v1/node/copy", copy_node, "admin"),
)
