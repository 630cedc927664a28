"""The settings of the master and of the proxy.

Owns: every number and name that an operator may choose, with its unit. `--help` prints them all.
"""

from pathlib import Path
from typing import Annotated, Self

from annotated_types import Ge, Le
from pydantic import Field, model_validator
from pydantic_settings import SettingsConfigDict

from dodona_server.settings import Count, Milliseconds, Port, ServerSettings, Url, public_address


class MasterSettings(ServerSettings):
    """The master gives out timestamps and owns the catalog. One process, one data folder."""

    model_config = SettingsConfigDict(env_prefix="DODONA_MASTER_")
    server = "master"

    port: Port = Field(8500, description="port for REST and for the data plane")
    data_dir: Path = Field(description="folder with the catalog and the timestamp ceiling")
    map_mib_max: Annotated[int, Ge(64)] = Field(
        16_384, description="largest size of the data file, MiB"
    )
    window_ms: Annotated[int, Ge(2), Le(900)] = Field(
        400, description="how far ahead of the clock the timestamp ceiling is set, ms"
    )
    renew_ms: Milliseconds = Field(
        200, description="the ceiling is raised when less than this is left of its window, ms"
    )
    clock_jump_hours_max: Annotated[int, Ge(1)] = Field(
        24,
        description="largest jump of the clock ahead while the master runs, hours: after a larger "
        "one no timestamps are given out",
    )
    clock_start_days_max: Annotated[int, Ge(1)] = Field(
        366,
        description="how far the clock may be ahead of the last timestamp at a start, days: if it "
        "is further ahead, no timestamps are given out",
    )
    waiting_count_max: Count = Field(
        100_000, description="largest number of changes and answers that wait for the disk"
    )

    @model_validator(mode="after")
    def _check_window(self) -> Self:
        if self.renew_ms >= self.window_ms:
            raise ValueError("renew-ms must be less than window-ms")
        return self


class ProxySettings(ServerSettings):
    """The proxy batches timestamp requests of many clients. It has no state: run any number."""

    model_config = SettingsConfigDict(env_prefix="DODONA_PROXY_")
    server = "proxy"

    port: Port = Field(8501, description="port for health checks and for the data plane")
    master_url: Url = Field("http://127.0.0.1:8500", description="URL of the master")
    public_url: Url | None = Field(
        None, description="URL at which clients reach this proxy; by default http://host:port"
    )
    answer_ms_max: Milliseconds = Field(
        3000, description="how long callers wait for the master's answer before they fail, ms"
    )
    waiting_count_max: Count = Field(
        200_000, description="largest number of callers that wait at a time"
    )
    register_ms: Milliseconds = Field(
        2000, description="time between two registrations with the master, ms"
    )

    @model_validator(mode="after")
    def _check_public_url(self) -> Self:
        public_address(self.host, self.port, self.public_url)
        return self

    @property
    def address(self) -> str:
        """The URL at which clients reach this proxy."""
        return public_address(self.host, self.port, self.public_url)
