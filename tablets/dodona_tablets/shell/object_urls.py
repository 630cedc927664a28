"""Choose the object store that a URL names.

Owns: the URLs that are understood, and what is said of others. The client of S3 is loaded only for
a URL of S3: a process must not fork afterwards.
"""

from urllib.parse import unquote, urlsplit

from dodona_tablets.shell.objects import FolderObjects, Objects
from dodona_wire.errors import InvalidRequest
from dodona_wire.net.paths import place_of
from dodona_wire.shown import shown


def open_objects(url: str) -> Objects:
    """Return the store of a URL: `file:///folder`, or `s3://bucket/prefix`. Raises
    InvalidRequest."""
    try:
        parts = urlsplit(url)
    except ValueError:
        raise _bad_url(url) from None
    if parts.username is not None or parts.password is not None:
        raise InvalidRequest(
            "The URL of the object store has a password. Leave it out, and set AWS_ACCESS_KEY_ID "
            "and AWS_SECRET_ACCESS_KEY in the environment."
        )
    if parts.query or parts.fragment:
        raise _bad_url(url)
    if parts.scheme == "file" and not parts.netloc and parts.path.strip("/"):
        return FolderObjects(place_of(unquote(parts.path)))
    if parts.scheme == "s3" and parts.netloc:
        from dodona_tablets.shell.s3_objects import S3Objects

        return S3Objects(url)
    raise _bad_url(url)


def _bad_url(url: str) -> InvalidRequest:
    return InvalidRequest(
        f"{shown(url.partition('?')[0])} is no URL of an object store: use s3://bucket/prefix, or "
        "file:///folder. Keys and options come from the environment."
    )
