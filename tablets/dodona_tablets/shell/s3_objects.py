"""Store immutable objects in S3, or in a store that speaks its protocol.

Owns: the calls of the client library `obstore`, their waits and repetitions, and what their errors
mean. The environment says where the store is and who calls: AWS_ENDPOINT_URL, AWS_REGION,
AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and others of AWS. No text shows a secret.

Invariants:
- A put that got no answer is never followed by a removal: it may arrive later.
- Nothing depends on a store that compares before it writes. A put asks for that where it costs
  nothing, to notice a name that was used twice.
Only this module may import `obstore`. It has threads, so a process must not fork after the import.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import S3Store

from dodona_tablets.shell.objects import ObjectMissing, check_wanted, never, taken
from dodona_wire.errors import InvalidRequest, Unavailable
from dodona_wire.net.folder import private_file
from dodona_wire.shown import shown

if TYPE_CHECKING:
    from obstore.store import ClientConfig

WHOLE_BYTES_MAX: Final = 32 << 20
"""Up to this size an object is put in one request, which is in memory meanwhile. Larger objects are
put in parts."""
PART_BYTES: Final = 8 << 20
PARTS_AT_ONCE_MAX: Final = 4
"""How many parts of one object are under way together."""
CONNECT_S_MAX: Final = 3
SILENCE_S_MAX: Final = 10
"""How long an answer may pause, unless it is that of an upload."""
CALL_S_MAX: Final = 120
"""How long one request may take, with its bytes."""
REPEATED_S_MAX: Final = 20
"""How long requests without an answer are repeated."""
REPEATED_COUNT_MAX: Final = 6

_REFUSED: Final = (BaseError, FileNotFoundError)
"""What the library raises. It has Python's own error for what is missing."""
_NO_WAY_IN: Final = re.compile(r"status code: 40[134]\b")
"""What the library says of a bucket that is missing, or that this user may not list."""


class S3Objects:
    """Objects below a prefix in a bucket."""

    def __init__(self, url: str) -> None:
        """Take a URL such as `s3://bucket/prefix`. Nothing is sent yet. Raises InvalidRequest."""
        self.place = url
        endpoint = os.environ.get("AWS_ENDPOINT_URL", "")
        if endpoint and not endpoint.startswith(("http://", "https://")):
            text = f"AWS_ENDPOINT_URL is {shown(endpoint)}: it begins with http:// or https://."
            raise InvalidRequest(text)
        try:
            self._store = _store_of(url, endpoint, {"read_timeout": f"{SILENCE_S_MAX}s"})
            # While a client sends, it hears nothing. So uploads have no limit for silence.
            self._uploads = _store_of(url, endpoint, {})
        except (BaseError, ValueError) as error:
            raise InvalidRequest(f"{shown(url)} can't be used: {_why(error)}") from error

    def put(self, name: str, path: Path) -> None:
        try:
            if path.stat().st_size <= WHOLE_BYTES_MAX:
                self._put_whole(name, path)
            else:
                self._put_parts(name, path)
        except _REFUSED as error:
            raise self._refused("put", name, error) from error

    def _put_whole(self, name: str, path: Path) -> None:
        """Put an object, unless it is there: then an answer was lost, or the name is taken."""
        try:
            obstore.put(self._uploads, name, path, mode="create", use_multipart=False)
        except AlreadyExistsError:
            self._compare(name, path)
        except BaseError as error:
            if "status code: 501" not in str(error):
                raise
            obstore.put(self._uploads, name, path, use_multipart=False)  # it knows no conditions

    def _put_parts(self, name: str, path: Path) -> None:
        try:
            self._compare(name, path)
        except FileNotFoundError:
            most = PARTS_AT_ONCE_MAX
            obstore.put(self._uploads, name, path, chunk_size=PART_BYTES, max_concurrency=most)

    def _compare(self, name: str, path: Path) -> None:
        """Compare an object that is there with a file. Raises DataCorrupted if they differ."""
        with path.open("rb") as file:
            for part in self._parts(name):
                if file.read(len(part)) != bytes(part):
                    raise taken(self.place, name)
            if file.read(1):
                raise taken(self.place, name)

    def _parts(self, name: str) -> Iterator[obstore.Bytes]:
        """Yield the content of an object. Each part is a request that is repeated by itself."""
        size_bytes = obstore.head(self._store, name)["size"]
        for start in range(0, size_bytes, PART_BYTES):
            end = min(start + PART_BYTES, size_bytes)
            yield obstore.get_range(self._store, name, start=start, end=end)

    def get(self, name: str, path: Path, is_over: Callable[[], bool] = never) -> None:
        try:
            with private_file(path, "wb") as file:
                for part in self._parts(name):
                    check_wanted(self.place, name, is_over)
                    file.write(part)
        except FileNotFoundError as error:
            raise ObjectMissing(name) from error
        except BaseError as error:
            raise self._refused("get", name, error) from error

    def remove(self, names: Iterable[str]) -> None:
        some = list(names)
        try:
            obstore.delete(self._store, some)
        except _REFUSED as error:
            raise self._refused("delete", some[0], error) from error

    def names(self, prefix: str) -> Iterator[str]:
        try:
            for found in obstore.list(self._store, f"{prefix}/"):
                for it in found:
                    yield str(it["path"])
        except _REFUSED as error:
            if not _NO_WAY_IN.search(why := _why(error)):
                raise self._refused("list", prefix, error) from error
            text = (
                f"The object store {self.place} can't be used: {why}. Make the bucket, or set "
                "AWS_ENDPOINT_URL, AWS_REGION and the keys of a user who may use it."
            )
            raise InvalidRequest(text, object_store=self.place) from error

    def _refused(self, call: str, name: str, error: Exception) -> Unavailable:
        about: dict[str, Any] = {"object_store": self.place, "object": name}
        return Unavailable(f"The object store did not {call} {name}: {_why(error)}", **about)


def _store_of(url: str, endpoint: str, more: "ClientConfig") -> S3Store:
    return S3Store.from_url(
        url,
        client_options={
            "connect_timeout": f"{CONNECT_S_MAX}s",
            "timeout": f"{CALL_S_MAX}s",
            "allow_http": endpoint.startswith("http://"),
            **more,
        },
        retry_config={
            "max_retries": REPEATED_COUNT_MAX,
            "retry_timeout": timedelta(seconds=REPEATED_S_MAX),
            "backoff": {"max_backoff": timedelta(seconds=2)},
        },
    )


def _why(error: Exception) -> str:
    """Return the reason in one line: what the library says, and the message of the store."""
    text = " ".join(str(error).split("\n\nDebug source:")[0].split())
    said, _, body = text.partition("<?xml")
    message = re.search("<Message>(.*?)</Message>", body)
    return f"{said}{message[1]}" if message else said
