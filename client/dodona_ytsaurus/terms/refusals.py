"""Refuse parameters that would make a command do something else than it does here. Pure.

Owns: which parameters these are. A parameter that is only a hint may be ignored. But a caller who
asks for a condition, a place or an end that Dodona lacks must get an error. Otherwise the command
would succeed without it.
"""

from collections.abc import Sequence
from typing import Any, Final

from dodona_wire.errors import InvalidRequest
from dodona_ytsaurus.terms.parameters import Parameters

ALWAYS: Final = {
    "prerequisite_transaction_ids": "Prerequisites are leases, which only Dodona's own API takes.",
    "prerequisite_revisions": "Prerequisites are leases, which only Dodona's own API takes.",
}
OF_COMMAND: Final[dict[str, dict[str, str]]] = {
    "create": {"lock_existing": "Dodona does not lock an existing node here. Call lock."},
    "copy": {"lock_existing": "Dodona does not lock an existing node here. Call lock."},
    "mount_table": {
        "cell_id": "The master chooses the cells of tablets.",
        "target_cell_ids": "The master chooses the cells of tablets.",
    },
    "reshard_table": {
        "trimmed_row_counts": "Dodona has sorted tables only.",
        "cumulative_data_weights": "Dodona has sorted tables only.",
    },
    "alter_table": {
        "upstream_replica_id": "Dodona has no table replicas.",
        "replication_progress": "Dodona has no table replicas.",
    },
    "start_transaction": {"deadline": "A transaction has no deadline. Use timeout."},
    "select_rows": {"udf_registry_path": "Dodona has no user-defined functions."},
    "explain_query": {"udf_registry_path": "Dodona has no user-defined functions."},
}
"""By command and by parameter, the reason for the refusal."""


def refuse(command: str, parameters: Parameters) -> None:
    """Raise InvalidRequest if one of the parameters asks for something."""
    for name, reason in {**ALWAYS, **OF_COMMAND.get(command, {})}.items():
        if parameters.raw(name) not in _NOTHING:
            text = f"The parameter {name!r} is not supported. {reason}"
            raise InvalidRequest(text, parameter=name)


UNKNOWN_STATISTICS: Final = {
    "chunk_count": "Dodona has no read_table. Use select_rows or lookup_rows.",
    "compressed_data_size": "Dodona has no read_table. Use select_rows or lookup_rows.",
    "data_weight": "Dodona has no read_table. Use select_rows or lookup_rows.",
    "uncompressed_data_size": "Dodona has no read_table. Use select_rows or lookup_rows.",
    "resource_usage": "Dodona has no accounts. Call list without -l, or use dodona list --long.",
}
"""Attributes that the client expects, and without which it would raise a KeyError. The values are
the reasons why there are none."""


def refuse_statistics(names: Sequence[str]) -> None:
    """Raise InvalidRequest if one of these attributes is requested."""
    for name in names:
        if name in UNKNOWN_STATISTICS:
            text = f"Dodona does not keep the attribute {name!r}. {UNKNOWN_STATISTICS[name]}"
            raise InvalidRequest(text, attribute=name)


_NOTHING: Final[tuple[Any, ...]] = (None, False, 0, "", [])
"""The values with which a parameter asks for nothing."""
