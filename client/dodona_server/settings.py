"""The common part of all servers' settings: how they are read, named and refused.

Owns: the base of all settings and the types of their values. A value comes from the command line,
else from the environment, else from the default. Values are checked at the start. Only servers
import this module: it needs pydantic, which the light client does not have.
"""

import os
import re
import sys
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal, Self, TypeVar
from urllib.parse import urlsplit

from annotated_types import Ge, Le
from pydantic import AfterValidator, Field, ValidationError, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from dodona_wire.near_names import nearest
from dodona_wire.net.addresses import is_loopback
from dodona_wire.net.cluster_key import KEY_FILE, Admission, ClusterKey, MetricsKey
from dodona_wire.net.roles import role_headers

USAGE_STATUS: Final = 2
_SERVICE_LINK: Final = re.compile(r"_(SERVICE_HOST|SERVICE_PORT.*|PORT_\d+_.*)$")


def _check_url(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("must be a URL such as http://127.0.0.1:8500")
    return url.rstrip("/")


Url = Annotated[str, AfterValidator(_check_url)]
Port = Annotated[int, Ge(1), Le(65_535)]
Milliseconds = Annotated[int, Ge(1), Le(3_600_000)]
Seconds = Annotated[int, Ge(1), Le(86_400)]
Count = Annotated[int, Ge(1)]


@cache
def _version() -> str:
    """Return the version of this program. A look into its metadata takes milliseconds."""
    return version("dodona")


class ProcessSettings(BaseSettings):
    """The settings of every process."""

    server: ClassVar[str] = ""
    """The kind of server, in its logs and traces."""

    model_config = SettingsConfigDict(
        cli_kebab_case=True,
        cli_implicit_flags=True,
        cli_hide_none_type=True,
        cli_avoid_json=True,
        extra="forbid",
        frozen=True,
    )

    @property
    def answer_headers(self) -> list[tuple[str, str]]:
        """Return the headers of every answer: the program's version, and the kind of server."""
        return [("Server", f"dodona/{_version()}"), *role_headers(self)]

    host: str = Field("127.0.0.1", description="address to listen on")
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="lowest level of lines on the standard error stream"
    )
    log_format: Literal["text", "json"] = Field(
        "text",
        description="form of lines on the standard error stream: text for people, or one JSON "
        "object a line",
    )
    cluster_key_file: Path | None = Field(
        None, description="file with the cluster key, which all processes and clients must show"
    )

    metrics_key_file: Path | None = Field(
        None, description="file with a key for /metrics only, which is sent as a bearer token"
    )
    drain_ms: Annotated[int, Ge(0), Le(600_000)] = Field(
        0,
        description="how long to go on serving after the signal to stop, ms: meanwhile /readyz "
        "says no, so that load balancers notice",
    )
    finish_ms_max: Milliseconds = Field(
        5_000, description="how long a stop waits for requests under way, after drain-ms, ms"
    )

    @property
    def metrics_key(self) -> MetricsKey | None:
        """The key, read anew each time. Raises InvalidRequest."""
        return None if self.metrics_key_file is None else MetricsKey.read(self.metrics_key_file)

    @property
    def cluster_key(self) -> ClusterKey | None:
        """The key, read anew each time. Raises InvalidRequest."""
        return None if self.cluster_key_file is None else ClusterKey.read(self.cluster_key_file)


class TracedSettings(ProcessSettings):
    """The settings of every process that makes traces. (Master and proxies make none: one answer
    with timestamps is for many callers, and part of no single trace.) Nodes accept the ratio, too,
    so that they can get the same settings as gateways. They begin no trace."""

    trace_url: Url | None = Field(
        None,
        description="URL to send traces to, by OTLP over HTTP, such as "
        "http://127.0.0.1:4318/v1/traces; by default the one in the environment's "
        "OTEL_EXPORTER_OTLP_ENDPOINT, else none: there are no traces",
    )
    trace_ratio: Annotated[float, Ge(0), Le(1)] | None = Field(
        None,
        description="share of a gateway's requests that are traced, of those that come without a "
        "trace; by default as the environment's OTEL_TRACES_SAMPLER says, else all. A node traces "
        "only requests that come with a trace",
    )


class ServerSettings(ProcessSettings):
    """The settings of every process with a data plane."""

    insecure: bool = Field(
        False, description="accept connections from other machines without a cluster key"
    )
    connection_count_max: Count = Field(
        4096, description="largest number of data plane connections at a time"
    )
    unread_mib_max: Count = Field(
        128,
        description="answers that a client may leave unread before its connection is closed, MiB",
    )

    @property
    def admission(self) -> Admission:
        """Which callers are admitted. Raises InvalidRequest."""
        is_here = is_loopback(self.host)
        file = self.cluster_key_file
        announced = None
        if file is not None and is_here and file.name == KEY_FILE:
            announced = str(file.absolute())
        is_open = file is None and is_here
        return Admission(self.cluster_key, self.metrics_key, is_open=is_open, announced=announced)

    @model_validator(mode="after")
    def _check_key(self) -> Self:
        if self.cluster_key_file is None and not self.insecure and not is_loopback(self.host):
            raise ValueError(
                f"to listen on {self.host}, set cluster-key-file: without a key, every caller may "
                "do everything. Set insecure only if no other machine can connect"
            )
        return self


Settings = TypeVar("Settings", bound=ProcessSettings)


def parse_settings(kind: type[Settings], program: str, arguments: list[str]) -> Settings:
    """Return the settings of a process. Prints help and exits if asked to. Raises SystemExit(2) if
    a setting is wrong, or if a variable of the environment is a misspelled setting."""
    if wrong := _misspelled(kind, os.environ):
        sys.stderr.write("\n".join([f"{program}: wrong settings (see --help)", *wrong, ""]))
        raise SystemExit(USAGE_STATUS)
    options: dict[str, Any] = {"_cli_parse_args": arguments, "_cli_prog_name": program}
    try:
        return kind(**options)
    except ValidationError as error:
        sys.stderr.write(_explain(program, error))
        raise SystemExit(USAGE_STATUS) from error


def _misspelled(kind: type[ProcessSettings], environment: Mapping[str, str]) -> list[str]:
    """Return a complaint for each variable that no setting reads and whose name is close to one
    that is read. (Others with that prefix may come from the machine: Kubernetes names Services
    so.)"""
    prefix = kind.model_config.get("env_prefix", "")
    known = [f"{prefix}{name}".upper() for name in kind.model_fields]
    unread = [it for it in environment if prefix and it.startswith(prefix) and it not in known]
    return [
        f"  there is no setting {name}: did you mean {near}?"
        for name in sorted(unread)
        if (near := nearest(name, known)) is not None and _SERVICE_LINK.search(name) is None
    ]


def _explain(program: str, error: ValidationError) -> str:
    lines = [f"{program}: wrong settings (see --help)"]
    for detail in error.errors(include_url=False):
        name = ".".join(str(part) for part in detail["loc"]).replace("_", "-")
        lines.append(f"  {name or 'settings'}: {detail['msg']}")
    return "\n".join([*lines, ""])


def public_address(host: str, port: int, public_url: str | None) -> str:
    """Return the URL at which others reach a server. Raises ValueError if it is not known."""
    if public_url is not None:
        return public_url
    if host in ("0.0.0.0", "::"):
        raise ValueError(f"to listen on {host}, set public-url")
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
