"""The settings of a gateway.

Owns: every number and name that an operator may choose, with its unit. `--help` prints them all.
"""

from pathlib import Path
from typing import Annotated, Self

from annotated_types import Ge, Le
from pydantic import Field, model_validator
from pydantic_settings import SettingsConfigDict

from dodona._core.protocol.limits import QueryLimits
from dodona_gateway.core.holdings import HoldingLimits
from dodona_gateway.core.transaction_id import GATEWAY_MAX
from dodona_gateway.shell.queries import QueryBounds
from dodona_server.http import HttpBounds
from dodona_server.settings import (
    Count,
    Port,
    Seconds,
    TracedSettings,
    Url,
    public_address,
)
from dodona_wire.net.addresses import is_loopback


class GatewaySettings(TracedSettings):
    """The gateway: REST for any language, and YTsaurus's HTTP API. Run any number."""

    model_config = SettingsConfigDict(env_prefix="DODONA_GATEWAY_")
    server = "gateway"

    port: Port = Field(8502, description="port for REST")
    master_url: Url = Field("http://127.0.0.1:8500", description="where the master is")
    public_url: Url | None = Field(
        None, description="where callers reach this very gateway; by default http(s)://host:port"
    )
    number: Annotated[int, Ge(0), Le(GATEWAY_MAX)] | None = Field(
        None,
        description="of this gateway among others, for the ids of transactions; by default from "
        "its public URL",
    )
    insecure: bool = Field(
        False, description="no tokens: everybody may do everything. On loopback only"
    )
    first_token_file: Path | None = Field(
        None,
        description="a cluster without any token gets one for everything: the one in this file, "
        "or, if there is no such file, a new one, which is written there",
    )
    tls_certificate: Path | None = Field(None, description="PEM file with the certificate chain")
    tls_key: Path | None = Field(None, description="PEM file with the certificate's key")
    audit_log: Path | None = Field(None, description="file that admin calls are recorded in")
    audit_mib_max: Count | None = Field(
        None,
        description="of that file: then it is moved to the same name with .1 behind it, in the "
        "place of the one that was moved before, MiB; by default it is never moved",
    )
    console: bool = Field(True, description="serve pages for people at /console")

    connection_count_max: Count = Field(4096, description="connections at a time")
    request_count_max: Count = Field(2048, description="requests at a time")
    header_kib_max: Count = Field(1024, description="request line and headers together, KiB")
    headers_mib_max: Count = Field(64, description="of headers that are still coming, of all, MiB")
    header_seconds_max: Seconds = Field(10, description="for headers to come, s")
    request_seconds_max: Seconds = Field(
        60, description="for a whole request to be answered, and for that to be taken, s"
    )
    stream_seconds_max: Seconds = Field(3600, description="the same of a bulk stream, s")
    stream_idle_seconds_max: Seconds = Field(
        30, description="without a byte from or to the other end of a bulk stream, s"
    )
    body_mib_max: Count = Field(8, description="a body that is no bulk stream, MiB")
    bodies_mib_max: Count = Field(256, description="of all such bodies at a time, MiB")
    answer_mib_max: Count = Field(
        32, description="an answer with rows that is no bulk stream, as it is sent, MiB"
    )
    answers_mib_max: Count = Field(
        256, description="of answers that are not taken yet, of all such requests, MiB"
    )
    query_count_max: Count = Field(
        4, description="queries that compute at a time, each in a process of its own"
    )
    query_cpu_seconds_max: Seconds = Field(30, description="processor time of one query, s")
    stream_count_max: Count = Field(16, description="bulk streams at a time")
    transaction_count_max: Count = Field(10_000, description="transactions held at a time")
    transactions_mib_max: Count = Field(512, description="of rows in held transactions, MiB")

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.insecure and not is_loopback(self.host):
            raise ValueError(f"insecure goes with a loopback address only, not with {self.host}")
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise ValueError("tls-certificate and tls-key go together")
        public_address(self.host, self.port, self.public_url)
        return self

    @property
    def address(self) -> str:
        """Where callers reach this very gateway."""
        address = public_address(self.host, self.port, self.public_url)
        if self.public_url is None and self.tls_certificate is not None:
            return address.replace("http://", "https://", 1)
        return address

    @property
    def answer_bytes_max(self) -> int:
        """Of rows in one answer."""
        return self.answer_mib_max << 20

    @property
    def audit_bytes_max(self) -> int | None:
        """Of the audit's file, if it has a bound."""
        return None if self.audit_mib_max is None else self.audit_mib_max << 20

    @property
    def http_bounds(self) -> HttpBounds:
        """Of connections."""
        return HttpBounds(
            header_seconds_max=self.header_seconds_max,
            header_bytes_max=self.header_kib_max << 10,
            answer_seconds_max=self.request_seconds_max,
            connection_count_max=self.connection_count_max,
            headers_bytes_max=self.headers_mib_max << 20,
        )

    @property
    def query_bounds(self) -> QueryBounds:
        """Of each query."""
        memory_mib_max = QueryLimits().memory_mib_max
        return QueryBounds(self.answer_bytes_max, self.query_cpu_seconds_max, memory_mib_max)

    @property
    def holding_limits(self) -> HoldingLimits:
        """What it holds for callers."""
        return HoldingLimits(
            open_count_max=self.transaction_count_max,
            open_per_owner_max=max(1, self.transaction_count_max // 2),
            bytes_max=self.transactions_mib_max << 20,
        )
