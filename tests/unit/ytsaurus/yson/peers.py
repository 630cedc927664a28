"""YTsaurus's own codecs, their values made from ours and back.

The native one (ytsaurus-yson) is what the real server and client use. The one in Python
(ytsaurus-client) is what a client without the native one falls back to.
"""

from collections.abc import Callable
from typing import Any

import yt.yson.parser
import yt.yson.writer
import yt_yson_bindings
from yt.yson.common import YsonError
from yt.yson.yson_types import (
    YsonBoolean,
    YsonDouble,
    YsonEntity,
    YsonInt64,
    YsonList,
    YsonMap,
    YsonString,
    YsonUint64,
)

from dodona_ytsaurus.yson import Attributed, Uint64

Dumps = Callable[..., bytes]
Loads = Callable[..., Any]

native_dumps: Dumps = yt_yson_bindings.dumps
native_loads: Loads = yt_yson_bindings.loads
python_dumps: Dumps = yt.yson.writer.dumps
python_loads: Loads = yt.yson.parser.loads
PEER_ERRORS = (YsonError,)


def to_theirs(value: Any) -> Any:
    """What their writers take for what ours takes."""
    if isinstance(value, Attributed):
        wrapped = _wrapped(to_theirs(value.value))
        wrapped.attributes = to_theirs(value.attributes)
        return wrapped
    if isinstance(value, Uint64):
        return YsonUint64(value)
    if isinstance(value, dict):
        return {key: to_theirs(item) for key, item in value.items()}
    if isinstance(value, list):
        return [to_theirs(item) for item in value]
    return value


def _wrapped(value: Any) -> Any:
    """Of a class that can have attributes."""
    if value is None:
        return YsonEntity()
    if isinstance(value, YsonUint64):
        return value
    classes = {
        bool: YsonBoolean,
        int: YsonInt64,
        float: YsonDouble,
        bytes: YsonString,
        list: YsonList,
        dict: YsonMap,
    }
    return classes[type(value)](value)


def to_ours(value: Any) -> Any:
    """What our reader gives for what theirs gave (with `encoding=None`)."""
    bare = _bare(value)
    if getattr(value, "attributes", None):
        return Attributed(bare, _map(value.attributes))
    return bare


def _bare(value: Any) -> Any:
    if value is None or isinstance(value, YsonEntity):
        return None
    if isinstance(value, bool | YsonBoolean):
        return bool(value)
    if isinstance(value, YsonUint64):
        return Uint64(value)
    if isinstance(value, dict):
        return _map(value)
    if isinstance(value, list):
        return [to_ours(item) for item in value]
    kind = next(it for it in (int, float, bytes) if isinstance(value, it))
    return kind(value)


def _map(entries: Any) -> dict[str, Any]:
    return {bytes(key).decode(): to_ours(item) for key, item in entries.items()}
