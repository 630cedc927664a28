"""The settings of a node whose log has its copies on log replicas.

Owns: where the copies, the chunks and etcd are, and the checks of these settings together. Without
`replicas` a node keeps its log and its chunks in its own folder, and none of these count.
"""

from pathlib import Path
from typing import Annotated, Self

from annotated_types import Ge, Le
from pydantic import AfterValidator, Field, TypeAdapter, model_validator

from dodona_replication.core.document import check_name
from dodona_replication.core.owner_effects import OwnerLimits
from dodona_server.settings import ProcessSettings, Url
from dodona_wire.errors import InvalidRequest

REPLICAS_MAX = 64
_URLS: TypeAdapter[tuple[str, ...]] = TypeAdapter(tuple[Url, ...])


def _check_cluster(name: str) -> str:
    try:
        return check_name(name, "cluster")
    except InvalidRequest as error:
        raise ValueError(error.message) from error


def _words(text: str) -> tuple[str, ...]:
    return tuple([it.strip() for it in text.split(",") if it.strip()])


def _check_urls(text: str) -> str:
    _URLS.validate_python(_words(text))
    return text


class ReplicationSettings(ProcessSettings):
    """Where the copies of a log are, and who decides on its owner."""

    replicas: Annotated[str, AfterValidator(_check_urls)] = Field(
        "",
        description="URLs of log replicas, with commas between them: the log is on some of them "
        "and not in the folder. Then etcd and object-store are needed, too",
    )
    cluster: Annotated[str, AfterValidator(_check_cluster)] = Field(
        "dodona", description="name of the cluster, as its log replicas have it"
    )
    etcd: str = Field(
        "", description="URLs of the members of etcd, which decides who owns a log, with commas"
    )
    etcd_user: str = Field("", description="user of etcd, if it has users")
    etcd_password_file: Path | None = Field(None, description="file with the password of the user")
    etcd_ca_file: Path | None = Field(
        None, description="file with certificates (PEM) that vouch for etcd"
    )
    etcd_certificate_file: Path | None = Field(
        None, description="file with the certificate (PEM) that this process shows to etcd"
    )
    etcd_key_file: Path | None = Field(None, description="file with the key of that certificate")
    object_store: str = Field(
        "",
        description="URL of the store of chunks: s3://bucket/prefix, with AWS_ENDPOINT_URL, "
        "AWS_REGION and keys in the environment, or file:///folder",
    )
    chunk_cache_mib_max: Annotated[int, Ge(1)] | None = Field(
        None,
        description="size of the copies of chunks in the folder above which copies go, MiB, those "
        "that were read long ago first; without a number all stay",
    )
    copies: Annotated[int, Ge(1), Le(REPLICAS_MAX)] = Field(
        3, description="number of replicas that get a copy of the log"
    )
    copies_min: Annotated[int, Ge(1), Le(REPLICAS_MAX)] = Field(
        2,
        description="number of copies below which the cell serves nothing; a log keeps the number "
        "that it began with",
    )
    lease_ms: Annotated[int, Ge(0), Le(10_000)] = Field(
        OwnerLimits().lease_ms,
        description="how long a node may answer reads without a new answer of the replicas, ms, "
        "the same in all nodes; 0 where a hypervisor may stop the clock: reads wait for an answer",
    )

    @property
    def is_replicated(self) -> bool:
        """Whether the log has its copies on replicas."""
        return bool(self.replicas)

    @property
    def replica_urls(self) -> tuple[str, ...]:
        """Return the addresses of the log replicas."""
        return _URLS.validate_python(_words(self.replicas))

    @property
    def chunk_cache_bytes_max(self) -> int | None:
        """Return how large the copies of chunks may become, in bytes, or None."""
        return None if self.chunk_cache_mib_max is None else self.chunk_cache_mib_max << 20

    @property
    def etcd_urls(self) -> tuple[str, ...]:
        """Return the addresses of the members of etcd."""
        return _words(self.etcd)

    def etcd_password(self) -> str:
        """Return the password of the user, if there is one. Raises InvalidRequest."""
        if self.etcd_password_file is None:
            return ""
        try:
            return self.etcd_password_file.read_text().strip()
        except OSError as error:
            text = f"cannot read the password of etcd's user: {error.strerror}"
            raise InvalidRequest(text, path=str(self.etcd_password_file)) from error

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        others = {"etcd": self.etcd, "object-store": self.object_store}
        missing = [name for name, value in others.items() if not value]
        if self.replicas and missing:
            raise ValueError(f"with replicas, set {' and '.join(missing)}, too")
        if not self.replicas and len(missing) < len(others):
            raise ValueError("etcd and object-store are of no use without replicas: set these, too")
        if self.chunk_cache_mib_max is not None and not self.replicas:
            raise ValueError(
                "chunk-cache-mib-max is of no use without replicas: chunks are nowhere else"
            )
        if not self.copies_min <= self.copies:
            raise ValueError(f"copies ({self.copies}) is below copies-min ({self.copies_min})")
        if self.replicas and len(self.replica_urls) < self.copies:
            raise ValueError(
                f"copies is {self.copies}, but replicas names {len(self.replica_urls)}: name more"
            )
        return self
