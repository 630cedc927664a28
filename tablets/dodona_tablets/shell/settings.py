"""Define a node's settings.

Owns: every number and name that an operator may choose, with its unit. `--help` prints them all.
"""

from pathlib import Path
from typing import Annotated, Final, Self

from annotated_types import Ge
from pydantic import Field, model_validator
from pydantic_settings import SettingsConfigDict

from dodona_server.flushes import RuntimeLimits
from dodona_server.settings import (
    Count,
    Milliseconds,
    Port,
    Seconds,
    ServerSettings,
    TracedSettings,
    Url,
    public_address,
)
from dodona_tablets.core.cell.limits import CellLimits
from dodona_tablets.shell.replication_settings import ReplicationSettings
from dodona_wire.types import CellId

_DEFAULTS: Final = CellLimits()
_RUNTIME_DEFAULTS: Final = RuntimeLimits()


class NodeSettings(ServerSettings, TracedSettings, ReplicationSettings):
    """A tablet node. It hosts one cell, in one process with one data folder. With replicas, another
    node may take the cell over."""

    model_config = SettingsConfigDict(env_prefix="DODONA_NODE_")
    server = "node"

    cell: Annotated[int, Ge(0)] | None = Field(
        None,
        description="number of the cell: it must stay the same as long as the cell has data. With "
        "replicas, a node without a number stands by: it takes over a cell whose owner is silent",
    )
    port: Port = Field(8502, description="port for the data plane and for health checks")
    data_dir: Path = Field(
        description="folder with the cell's log and chunks; with replicas, with copies of chunks"
    )
    master_url: Url = Field("http://127.0.0.1:8500", description="URL of the master")
    public_url: Url | None = Field(
        None, description="URL at which others reach this node; by default http://host:port"
    )
    map_mib_max: Annotated[int, Ge(512)] = Field(65_536, description="largest size of the log, MiB")
    memory_mib_max: Annotated[int, Ge(16)] = Field(
        _DEFAULTS.memory_bytes_max >> 20,
        description="memory for rows in stores, MiB: rows that are in no chunk yet, or are kept "
        "in memory as well",
    )
    batch_mib_max: Count = Field(
        _DEFAULTS.batch_bytes_max >> 20,
        description="memory for bulk data that is in no chunk yet, MiB: it takes up to three times "
        "as much while it is checked and written",
    )
    compaction_mib_per_s_max: Count = Field(
        64, description="how fast compaction may read and write, MiB/s"
    )
    waiting_count_max: Count = Field(
        100_000, description="largest number of records and answers that wait for the disk"
    )
    inline_flush_us_max: Annotated[int, Ge(0)] = Field(
        3_000,
        description="longest flush that the event loop makes itself, µs: nothing else runs "
        "meanwhile, but short flushes are faster for all clients; 0: the loop makes none",
    )
    async_loss_ms_max: Milliseconds = Field(
        100, description="how much time of durability=async writes a crash may lose, ms"
    )
    transaction_life_s_max: Seconds = Field(
        _DEFAULTS.transaction_life_s_max, description="longest life of a transaction, s"
    )
    transaction_rows_max: Count = Field(
        _DEFAULTS.transaction_rows_max, description="rows that one transaction may touch"
    )
    transaction_bytes_max: Count = Field(
        _DEFAULTS.transaction_bytes_max, description="bytes that one transaction may write"
    )
    client_clock_difference_s_max: Seconds = Field(
        _DEFAULTS.client_clock_difference_s_max,
        description="how far a client's clock may be wrong in writes with atomicity=none, s",
    )
    blocked_wait_ms_max: Milliseconds = Field(
        _DEFAULTS.blocked_wait_ms_max,
        description="longest wait for a prepared row, ms",
    )

    reader_lease_s_max: int = Field(
        _DEFAULTS.reader_lease_ms_max // 1000,
        ge=60,  # clients ask for this by themselves
        le=3_600,
        description="longest lease of a held snapshot, s: the reader must renew it in that time, "
        "and longer leases are refused",
    )
    reader_renewal_s_max: Seconds = Field(
        _DEFAULTS.reader_renewal_ms_max // 1000,
        description="how long a tablet keeps all versions after its mount, s: so that readers can "
        "renew the snapshots that they hold",
    )

    @model_validator(mode="after")
    def _check_public_url(self) -> Self:
        public_address(self.host, self.port, self.public_url)
        return self

    @model_validator(mode="after")
    def _check_cell(self) -> Self:
        if self.cell is None and not self.is_replicated:
            raise ValueError("cell is missing: only a node with replicas may stand by")
        return self

    @property
    def cell_id(self) -> CellId:
        """Return the number of the cell that this process hosts."""
        assert self.cell is not None
        return CellId(self.cell)

    def hosting(self, cell: CellId) -> Self:
        """Return the settings of a process that hosts this cell."""
        return self.model_copy(update={"cell": cell})

    @property
    def address(self) -> str:
        """Return the address at which others reach this node."""
        return public_address(self.host, self.port, self.public_url)

    @property
    def log_bytes_max(self) -> int:
        """Return how large the log may become, in bytes."""
        return self.map_mib_max << 20

    def runtime_limits(self) -> RuntimeLimits:
        """Return the runtime's limits as set here. What waits for the log, and one frame more, fits
        into what a full log has left (`log_fill_ratio_max`)."""
        return RuntimeLimits(
            waiting_count_max=self.waiting_count_max,
            waiting_bytes_max=min(_RUNTIME_DEFAULTS.waiting_bytes_max, self.log_bytes_max // 8),
            at_once_age_ms_max=self.async_loss_ms_max,
            inline_flush_us_max=self.inline_flush_us_max,
        )

    def limits(self) -> CellLimits:
        """Return the cell's limits as set here."""
        return CellLimits(
            transaction_life_s_max=self.transaction_life_s_max,
            transaction_rows_max=self.transaction_rows_max,
            transaction_bytes_max=self.transaction_bytes_max,
            client_clock_difference_s_max=self.client_clock_difference_s_max,
            blocked_wait_ms_max=self.blocked_wait_ms_max,
            memory_bytes_max=self.memory_mib_max << 20,
            batch_bytes_max=self.batch_mib_max << 20,
            reader_lease_ms_max=self.reader_lease_s_max * 1000,
            reader_renewal_ms_max=self.reader_renewal_s_max * 1000,
            has_object_store=bool(self.replicas),
            chunk_cache_bytes_max=self.chunk_cache_bytes_max,
        )
