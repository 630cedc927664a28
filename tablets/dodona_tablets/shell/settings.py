"""A node's settings.

Owns: every number and name that an operator may choose, with its unit. `--help` prints them all.
"""

from pathlib import Path
from typing import Annotated, Final, Self

from annotated_types import Ge
from pydantic import Field, model_validator
from pydantic_settings import SettingsConfigDict

from dodona_server.runtime import RuntimeLimits
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
from dodona_tablets.core.cell.cell import CellLimits

_DEFAULTS: Final = CellLimits()
_RUNTIME_DEFAULTS: Final = RuntimeLimits()


class NodeSettings(ServerSettings, TracedSettings):
    """The tablet node: hosts one cell. One process, one data folder."""

    model_config = SettingsConfigDict(env_prefix="DODONA_NODE_")
    server = "node"

    cell: Annotated[int, Ge(0)] = Field(
        description="the cell's number: the same for as long as its data lives"
    )
    port: Port = Field(8502, description="port for the data plane and for health checks")
    data_dir: Path = Field(description="folder of the cell's log and chunks")
    master_url: Url = Field("http://127.0.0.1:8500", description="where the master is")
    public_url: Url | None = Field(
        None, description="where others reach this node; by default http://host:port"
    )
    map_mib_max: Annotated[int, Ge(512)] = Field(
        65_536, description="size that the log may grow to, MiB"
    )
    memory_mib_max: Annotated[int, Ge(16)] = Field(
        _DEFAULTS.memory_bytes_max >> 20,
        description="memory for rows that are in no chunk yet, or not only, MiB",
    )
    batch_mib_max: Count = Field(
        _DEFAULTS.batch_bytes_max >> 20,
        description="memory for bulk data on its way into chunks, MiB: it takes up to three times "
        "as much while it is checked and written",
    )
    compaction_mib_per_s_max: Count = Field(
        64, description="how fast compaction may read and write, MiB/s"
    )
    waiting_count_max: Count = Field(
        100_000, description="records and answers that may wait for the disk"
    )
    inline_flush_us_max: Annotated[int, Ge(0)] = Field(
        3_000,
        description="as long as the disk takes no longer for a short flush, nothing else is done "
        "meanwhile, which is faster for all, µs; 0: never",
    )
    async_loss_ms_max: Milliseconds = Field(
        100, description="what a crash may take back of durability=async, ms"
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
        description="how far a client's clock may be off for atomicity=none, s",
    )
    blocked_wait_ms_max: Milliseconds = Field(
        _DEFAULTS.blocked_wait_ms_max, description="longest wait on a prepared row, ms"
    )

    reader_lease_s_max: int = Field(
        _DEFAULTS.reader_lease_ms_max // 1000,
        ge=60,  # what clients ask for by themselves
        le=3_600,
        description="how long a snapshot is held at most without being renewed, s: "
        "longer leases are refused",
    )
    reader_renewal_s_max: Seconds = Field(
        _DEFAULTS.reader_renewal_ms_max // 1000,
        description="how long everything is kept of a tablet that was just mounted, s: so that "
        "whoever holds a snapshot of it can renew that",
    )

    @model_validator(mode="after")
    def _check_public_url(self) -> Self:
        public_address(self.host, self.port, self.public_url)
        return self

    @property
    def address(self) -> str:
        """Where others reach this node."""
        return public_address(self.host, self.port, self.public_url)

    @property
    def log_bytes_max(self) -> int:
        """How large the log may become."""
        return self.map_mib_max << 20

    def runtime_limits(self) -> RuntimeLimits:
        """The runtime's limits as set here. What waits for the log, and one frame more, fits into
        what a full one has left (`log_fill_ratio_max`)."""
        return RuntimeLimits(
            waiting_count_max=self.waiting_count_max,
            waiting_bytes_max=min(_RUNTIME_DEFAULTS.waiting_bytes_max, self.log_bytes_max // 8),
            at_once_age_ms_max=self.async_loss_ms_max,
            inline_flush_us_max=self.inline_flush_us_max,
        )

    def limits(self) -> CellLimits:
        """The cell's limits as set here."""
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
        )
