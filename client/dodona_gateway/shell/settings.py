"""Define the settings of a gateway.

Owns: every number and name that an operator may choose, with its unit. `--help` prints all of them.
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
    """Run a gateway: REST for any language, and YTsaurus's HTTP API. Start any number of them."""

    model_config = SettingsConfigDict(env_prefix="DODONA_GATEWAY_")
    server = "gateway"

    port: Port = Field(8502, description="port for REST")
    master_url: Url = Field("http://127.0.0.1:8500", description="URL of the master")
    public_url: Url | None = Field(
        None, description="URL of this gateway and no other; by default http(s)://host:port"
    )
    number: Annotated[int, Ge(0), Le(GATEWAY_MAX)] | None = Field(
        None,
        description="number of this gateway, for the ids of transactions: no other gateway has "
        "it; by default it is made from the public URL",
    )
    insecure: bool = Field(
        False, description="ask for no tokens: every caller may do everything; on loopback only"
    )
    first_token_file: Path | None = Field(
        None,
        description="file with the first token, which allows everything: a cluster without any "
        "token gets it. If there is no such file, a new token is made and written there",
    )
    tls_certificate: Path | None = Field(None, description="PEM file with the certificate chain")
    tls_key: Path | None = Field(None, description="PEM file with the certificate's key")
    audit_log: Path | None = Field(None, description="file in which admin calls are recorded")
    audit_mib_max: Count | None = Field(
        None,
        description="largest size of the audit log, MiB: then it is moved to the same name with .1 "
        "at the end, and replaces the one that was moved before; by default it is never moved, nor "
        "is a device, a pipe or an output of the gateway",
    )
    console: bool = Field(True, description="serve pages for people at /console")

    connection_count_max: Count = Field(4096, description="largest number of connections")
    request_count_max: Count = Field(2048, description="largest number of requests at a time")
    header_kib_max: Count = Field(
        1024, description="largest size of the request line and headers together, KiB"
    )
    headers_mib_max: Count = Field(
        64, description="largest size of all headers that are not complete yet, MiB"
    )
    header_seconds_max: Seconds = Field(10, description="longest time for headers to come, s")
    request_seconds_max: Seconds = Field(
        60, description="longest time to answer a request, and then to deliver the answer, s"
    )
    stream_seconds_max: Seconds = Field(3600, description="longest time of a whole bulk stream, s")
    stream_idle_seconds_max: Seconds = Field(
        30, description="longest time without a byte from or to the client of a bulk stream, s"
    )
    body_mib_max: Count = Field(8, description="largest body that is no bulk stream, MiB")
    bodies_mib_max: Count = Field(
        256, description="largest size of all bodies at a time that are no bulk streams, MiB"
    )
    answer_mib_max: Count = Field(
        32, description="largest answer with rows that is no bulk stream, as it is sent, MiB"
    )
    answers_mib_max: Count = Field(
        256,
        description="largest size of all answers that clients have not read yet, but for bulk "
        "streams, MiB",
    )
    query_count_max: Count = Field(
        4,
        description="largest number of queries that compute at a time, each in a process of its "
        "own",
    )
    query_cpu_seconds_max: Seconds = Field(30, description="largest processor time of one query, s")
    stream_count_max: Count = Field(16, description="largest number of bulk streams at a time")
    transaction_count_max: Count = Field(
        10_000, description="largest number of transactions held at a time"
    )
    transactions_mib_max: Count = Field(
        512, description="largest size of the rows in held transactions, MiB"
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.insecure and not is_loopback(self.host):
            raise ValueError(f"insecure needs a loopback address, not {self.host}")
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise ValueError("set both tls-certificate and tls-key, or neither")
        public_address(self.host, self.port, self.public_url)
        return self

    @property
    def address(self) -> str:
        """Return the address by which callers reach this gateway."""
        address = public_address(self.host, self.port, self.public_url)
        if self.public_url is None and self.tls_certificate is not None:
            return address.replace("http://", "https://", 1)
        return address

    @property
    def answer_bytes_max(self) -> int:
        """Return the bound on the rows of one answer, in bytes."""
        return self.answer_mib_max << 20

    @property
    def audit_bytes_max(self) -> int | None:
        """Return the bound on the audit's file, in bytes; None for no bound."""
        return None if self.audit_mib_max is None else self.audit_mib_max << 20

    @property
    def http_bounds(self) -> HttpBounds:
        """Return the bounds on connections."""
        return HttpBounds(
            header_seconds_max=self.header_seconds_max,
            header_bytes_max=self.header_kib_max << 10,
            answer_seconds_max=self.request_seconds_max,
            connection_count_max=self.connection_count_max,
            headers_bytes_max=self.headers_mib_max << 20,
        )

    @property
    def query_bounds(self) -> QueryBounds:
        """Return the bounds of each query."""
        memory_mib_max = QueryLimits().memory_mib_max
        return QueryBounds(self.answer_bytes_max, self.query_cpu_seconds_max, memory_mib_max)

    @property
    def holding_limits(self) -> HoldingLimits:
        """Return the bounds on transactions that the gateway holds for callers."""
        return HoldingLimits(
            open_count_max=self.transaction_count_max,
            open_per_owner_max=max(1, self.transaction_count_max // 2),
            bytes_max=self.transactions_mib_max << 20,
        )
