"""The settings of a log replica.

Owns: every number and name that an operator may choose, with its unit. `--help` prints them all.
"""

from pathlib import Path
from typing import Annotated, Final

from annotated_types import Ge
from pydantic import AfterValidator, Field
from pydantic_settings import SettingsConfigDict

from dodona_replication.core.document import check_name
from dodona_replication.core.replica import ReplicaLimits
from dodona_server.flushes import RuntimeLimits
from dodona_server.settings import Count, Port, ServerSettings
from dodona_wire.errors import InvalidRequest

_DEFAULTS: Final = ReplicaLimits()
_RUNTIME_DEFAULTS: Final = RuntimeLimits()


def _check_cluster(name: str) -> str:
    try:
        return check_name(name, "cluster")
    except InvalidRequest as error:
        raise ValueError(error.message) from error


class ReplicaSettings(ServerSettings):
    """A log replica keeps copies of the logs of many cells, in one process with one data folder."""

    model_config = SettingsConfigDict(env_prefix="DODONA_REPLICA_")
    server = "replica"

    cluster: Annotated[str, AfterValidator(_check_cluster)] = Field(
        "dodona",
        description="name of the cluster: a data folder keeps the one that it was made for",
    )
    port: Port = Field(8504, description="port for the data plane and for health checks")
    data_dir: Path = Field(
        description="folder with the logs: an empty one is a new replica, with a new id"
    )
    map_mib_max: Annotated[int, Ge(512)] = Field(
        65_536, description="largest size of the data file, MiB"
    )
    logs_max: Count = Field(_DEFAULTS.logs_max, description="largest number of logs")
    waiters_max: Count = Field(
        _DEFAULTS.waiters_max,
        description="largest number of processes that wait for a log without an owner",
    )
    waiting_count_max: Count = Field(
        100_000, description="largest number of records and answers that wait for the disk"
    )
    inline_flush_us_max: Annotated[int, Ge(0)] = Field(
        3_000,
        description="longest flush that the event loop makes itself, µs: nothing else runs "
        "meanwhile, but short flushes are faster for all owners; 0: the loop makes none",
    )

    @property
    def map_bytes_max(self) -> int:
        """How large the data file may become, in bytes."""
        return self.map_mib_max << 20

    def limits(self) -> ReplicaLimits:
        """Return the replica's limits as set here."""
        return ReplicaLimits(logs_max=self.logs_max, waiters_max=self.waiters_max)

    def runtime_limits(self) -> RuntimeLimits:
        """Return the runtime's limits as set here. What waits for the disk fits into what a full
        file has left (see `SPARE_BYTES` of the store)."""
        return RuntimeLimits(
            waiting_count_max=self.waiting_count_max,
            waiting_bytes_max=min(_RUNTIME_DEFAULTS.waiting_bytes_max, self.map_bytes_max // 8),
            inline_flush_us_max=self.inline_flush_us_max,
        )
