"""Parameters that would make a command do something else than it does here. Pure.

Owns: which these are. What only hints at how to do a thing may be left alone, as it is; but who
asks for a condition, a place or an end that Dodona lacks has to be told, as the command would
succeed without it.
"""

from collections.abc import Sequence
from typing import Any, Final

from dodona_gateway.core.ytsaurus.parameters import Parameters
from dodona_wire.errors import InvalidRequest

ALWAYS: Final = {
    "prerequisite_transaction_ids": "a command has no prerequisites here",
    "prerequisite_revisions": "a command has no prerequisites here",
}
OF_COMMAND: Final[dict[str, dict[str, str]]] = {
    "create": {"lock_existing": "what exists is not locked: lock it by itself"},
    "copy": {"lock_existing": "what exists is not locked: lock it by itself"},
    "mount_table": {
        "cell_id": "the master chooses the cells of tablets",
        "target_cell_ids": "the master chooses the cells of tablets",
    },
    "reshard_table": {
        "trimmed_row_counts": "tables are sorted here, none is ordered",
        "cumulative_data_weights": "tables are sorted here, none is ordered",
    },
    "alter_table": {
        "upstream_replica_id": "tables have no replicas here",
        "replication_progress": "tables have no replicas here",
    },
    "start_transaction": {"deadline": "a transaction has a time-out here, and no deadline"},
    "select_rows": {"udf_registry_path": "functions of a user's own are not known here"},
    "explain_query": {"udf_registry_path": "functions of a user's own are not known here"},
}
"""By command, and by the parameter's name, why not."""


def refuse(command: str, parameters: Parameters) -> None:
    """Raises InvalidRequest if one of them asks for something."""
    for name, reason in {**ALWAYS, **OF_COMMAND.get(command, {})}.items():
        if parameters.raw(name) not in _NOTHING:
            raise InvalidRequest(f"parameter {name!r} is not supported: {reason}", parameter=name)


UNKNOWN_STATISTICS: Final = {
    "chunk_count": "read_table is not supported: use select_rows or lookup_rows",
    "compressed_data_size": "read_table is not supported: use select_rows or lookup_rows",
    "data_weight": "read_table is not supported: use select_rows or lookup_rows",
    "uncompressed_data_size": "read_table is not supported: use select_rows or lookup_rows",
    "resource_usage": "there are no accounts here: list without -l, or with dodona list --long",
}
"""Attributes that the client takes for granted, and would miss with a KeyError, and why there are
none."""


def refuse_statistics(names: Sequence[str]) -> None:
    """Raises InvalidRequest if one of these attributes is asked for."""
    for name in names:
        if name in UNKNOWN_STATISTICS:
            text = f"attribute {name!r} is not kept: {UNKNOWN_STATISTICS[name]}"
            raise InvalidRequest(text, attribute=name)


_NOTHING: Final[tuple[Any, ...]] = (None, False, 0, "", [])
"""What a parameter says that is given without need."""
