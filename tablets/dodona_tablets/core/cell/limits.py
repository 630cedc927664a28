"""Define the limits and periods of a cell. Owns: their defaults."""

import msgspec


class CellLimits(msgspec.Struct, frozen=True):
    """The limits and periods of a cell. Durations are in milliseconds, or in seconds if the name
    says so."""

    transaction_life_s_max: int = 60
    forget_slack_s: int = 15
    client_clock_difference_s_max: int = 60
    blocked_wait_ms_max: int = 5_000
    oracle_wait_ms_max: int = 5_000
    transaction_rows_max: int = 100_000
    transaction_bytes_max: int = 33 << 20
    """A little more than the limit of clients, which refuse early, by an estimate."""
    transactions_alive_max: int = 100_000
    reads_waiting_max: int = 10_000
    log_fill_ratio_max: float = 0.75
    """A fuller log takes no new writes. The rest is for transactions in progress."""
    ask_coordinator_after_ms: int = 1_000
    recover_after_ms: int = 2_000
    repeat_after_ms: int = 1_000
    tell_silence_after_ms: int = 2_000
    """A caller that asks for an outcome gets the name of a silent cell after this time."""
    heartbeat_period_ms: int = 400
    heartbeat_hold_ms: int = 800
    """The master may hold its answer back for this time if it has no news. This time and the period
    together are less than the silence after which a cell does not count as alive."""
    oracle_time_period_ms: int = 500
    watermark_period_ms: int = 4_000
    memory_bytes_max: int = 2 << 30
    """The limit of all dynamic stores. Above it, the cell refuses writes."""
    batch_bytes_max: int = 512 << 20
    """The limit of bulk data on its way into chunks. One batch is always admitted."""
    checkpoint_period_ms: int = 15_000
    quiet_tick_ms: int = 1_000
    """The time between two ticks of a cell without work in progress. Leases end, and stores are
    flushed, later by this time. Any event brings the next tick forward."""
    compaction_round_ms: int = 5_000
    """The time from the start of one search of all tablets for chunks to compact to the next. A new
    chunk brings the next search forward."""
    clean_period_ms: int = 30_000
    """How often the cell looks, tablet by tablet, for chunks with versions that retention may
    remove."""
    readers_max: int = 1_000
    """The limit of readers that hold snapshots here at a time."""
    reader_tablets_max: int = 100_000
    """The limit of tablets of all readers together."""
    reader_lease_ms_max: int = 3_600_000
    """The cell refuses a longer lease."""
    loads_max: int = 1_000
    """The limit of bulk loads that are open here at a time."""
    load_lease_ms_max: int = 3_600_000
    """The cell refuses a longer lease."""
    staged_chunks_max: int = 20_000
    """The limit of all loads together. With the deletions of seals, twice as many are allowed."""
    reader_renewal_ms_max: int = 60_000
    """A tablet that begins to be served keeps all versions for this time. Readers that held its
    snapshot in another cell, or before a restart, renew it in this time."""
    has_object_store: bool = False
    """Whether an object store has all chunks, so that their rows may go from this machine."""
    chunk_cache_bytes_max: int | None = None
    """The limit of the rows of chunks on this machine, if an object store has all of them, or None.
    Above it, those that were used long ago go."""
    chunk_wait_ms_max: int = 8_000
    """How long a read waits for chunks of the object store. Callers wait for 10 s."""
    chunk_waits_max: int = 1_000
    """The limit of requests that wait for chunks of the object store at a time."""
    chunk_waits_bytes_max: int = 64 << 20
    """The limit of the keys in these requests."""
