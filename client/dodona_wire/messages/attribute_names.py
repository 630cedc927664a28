"""Find attribute names that have no effect, or look like misspelt settings. Pure.

Owns: YTsaurus's attributes that change nothing in Dodona, which are kept with a warning. Also owns
which names of users' own attributes are so near to a setting that they must be a mistake. A name
that begins with an underscore is always the user's own.
"""

from collections.abc import Iterable
from typing import Final

from dodona_wire.near_names import nearest
from dodona_wire.types import TableSettings

SETTINGS: Final = ("atomicity", *TableSettings.__struct_fields__)
"""Attributes that users may set on a table, besides their own."""
OWN_PREFIX: Final = "_"

WITHOUT_MEANING: Final = frozenset(
    (
        "account",
        "acl",
        "auto_compaction_period",
        "backing_store_retention_time",
        "chunk_format",
        "chunk_merger_mode",
        "chunk_reader",
        "chunk_writer",
        "commit_ordering",
        "compression_codec",
        "desired_tablet_count",
        "desired_tablet_size",
        "dynamic_store_flush_period_splay",
        "dynamic_store_overflow_threshold",
        "enable_dynamic_store_read",
        "enable_hash_chunk_index_for_lookup",
        "enable_lookup_hash_table",
        "enable_lsm_verbose_logging",
        "enable_replication_logging",
        "enable_skynet_sharing",
        "enable_store_rotation",
        "enable_striped_erasure",
        "enable_tablet_balancer",
        "erasure_codec",
        "expiration_time",
        "expiration_timeout",
        "external",
        "forced_chunk_view_compaction_revision",
        "forced_compaction_revision",
        "forced_hunk_compaction_revision",
        "forced_rotation_revision",
        "forced_store_compaction_revision",
        "hunk_erasure_codec",
        "hunk_storage_node",
        "inherit_acl",
        "lookup_cache_rows_per_tablet",
        "max_compaction_store_count",
        "max_dynamic_store_timestamp_count",
        "max_dynamic_store_value_count",
        "max_inline_hunk_size",
        "max_overlapping_store_count",
        "max_partition_count",
        "max_read_duration",
        "max_tablet_size",
        "media",
        "merge_deletions_on_flush",
        "min_compaction_store_count",
        "min_hunk_compaction_total_hunk_length",
        "min_partition_data_size",
        "min_tablet_size",
        "monitor_table_statistics",
        "monitor_table_tag",
        "mount_config",
        "opaque",
        "optimize_for",
        "partition_reader_config",
        "preserve_tablet_index",
        "primary_medium",
        "profiling_mode",
        "profiling_tag",
        "replication_factor",
        "row_count_to_keep",
        "security_tags",
        "tablet_balancer_config",
        "tablet_cell_bundle",
        "tablet_stream_id",
        "trimmed_row_counts",
        "unversioned_update_schema",
        "upstream_replica_id",
        "vital",
    )
)
"""Where and how YTsaurus keeps a table, and who may use it there."""


def meant(name: str) -> str | None:
    """Return the setting of which this name is a misspelling, None if there is none."""
    plain = name.lower().replace("-", "_")
    is_own = name.startswith(OWN_PREFIX) or name in SETTINGS
    if is_own or name in WITHOUT_MEANING:
        return None
    return nearest(plain, SETTINGS)


def warnings_about(names: object) -> list[str]:
    """Return a sentence for each name without effect. A later check refuses other values."""
    given = {it for it in names if isinstance(it, str)} if isinstance(names, Iterable) else set()
    return [
        f"attribute {name!r} of YTsaurus has no effect in Dodona: see the settings in "
        "docs/reference/settings.md"
        for name in sorted(WITHOUT_MEANING & given)
    ]


def names_set(path: str, value: object) -> list[str]:
    """Return which attributes are set by setting this value at this path."""
    name = path.rpartition("/@")[2] if "/@" in path else None
    if name == "":
        return [it for it in value if isinstance(it, str)] if isinstance(value, dict) else []
    return [] if name is None else [name.partition("/")[0]]
