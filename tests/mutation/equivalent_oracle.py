"""Mutants of the oracle that no test can kill. Owns: their list, each with its reason; `equivalent`
says how they are recognized."""

from mutation.mutant import Equivalent

CLOCK_GUARD = "oracle/dodona_oracle/core/clock_guard.py"
JOURNAL = "oracle/dodona_oracle/core/journal.py"
ATTRIBUTE_CALLS = "oracle/dodona_oracle/core/attribute_calls.py"
CATALOG = "oracle/dodona_oracle/core/catalog.py"
CELLS = "oracle/dodona_oracle/core/cells.py"
ATTRIBUTES = "oracle/dodona_oracle/core/attributes.py"
ALLOCATOR = "oracle/dodona_oracle/core/allocator.py"
HEARTBEATS = "oracle/dodona_oracle/core/heartbeats.py"
MASTER = "oracle/dodona_oracle/core/master.py"
MOUNTING = "oracle/dodona_oracle/core/mounting.py"
PROXY = "oracle/dodona_oracle/core/proxy.py"
PATHS = "oracle/dodona_oracle/core/paths.py"
RECORDS = "oracle/dodona_oracle/core/records.py"
TABLES = "oracle/dodona_oracle/core/tables.py"
TREE_CALLS = "oracle/dodona_oracle/core/tree_calls.py"
TREE_TRANSACTIONS = "oracle/dodona_oracle/core/tree_transactions.py"

OF_ORACLE: tuple[Equivalent, ...] = (
    Equivalent(
        ALLOCATOR,
        "NEVER_US: Final = -1",
        "NEVER_US: Final = - 0",
        "the first range lies above the ceiling: it waits for an append whatever the lease",
    ),
    Equivalent(
        ALLOCATOR,
        "NEVER_US: Final = -1",
        "NEVER_US: Final = - 2",
        "the first range lies above the ceiling: it waits for an append whatever the lease",
    ),
    Equivalent(
        ALLOCATOR,
        "margin_count: int = 10 * TIMESTAMPS_PER_REQUEST_MAX",
        "margin_count: int = 10 + TIMESTAMPS_PER_REQUEST_MAX",
        "how large the margin is, is a choice",
    ),
    Equivalent(
        ALLOCATOR,
        "self._renew_at_us = 0",
        "self._renew_at_us = -1",
        "the first append sets it, and nothing is renewed before",
    ),
    Equivalent(
        ALLOCATOR,
        "self._renew_at_us = 0",
        "self._renew_at_us = 1",
        "the first append sets it, and nothing is renewed before",
    ),
    Equivalent(
        ALLOCATOR,
        "self._ahead = self._ahead_max = 0",
        "self._ahead = self._ahead_max = 1",
        "both are told in microseconds, which have many timestamps",
    ),
    Equivalent(
        ALLOCATOR,
        "if self._ahead > self._ahead_max:",
        "if self._ahead >= self._ahead_max:",
        "an equal one may be remembered again",
    ),
    Equivalent(
        ALLOCATOR,
        "is_near_counter = self._appended < self._next_unused + settings.margin_count // 2",
        "is_near_counter = self._appended <= self._next_unused + settings.margin_count // 2",
        "one timestamp of millions",
    ),
    Equivalent(
        ALLOCATOR,
        "is_near_counter = self._appended < self._next_unused + settings.margin_count // 2",
        "is_near_counter = self._appended < self._next_unused + settings.margin_count // 3",
        "how much of the margin is left when the next ceiling is written is a choice",
    ),
    Equivalent(
        ALLOCATOR,
        "is_lease_long = self._leased_until_us - now.instant_us > settings.lease_us // 2",
        "is_lease_long = self._leased_until_us - now.instant_us >= settings.lease_us // 2",
        "one microsecond of half a lease",
    ),
    Equivalent(
        ALLOCATOR,
        "if is_lease_long and not is_near_counter and spare > _ticks(ROUNDING_US):",
        "if is_lease_long and not is_near_counter and spare >= _ticks(ROUNDING_US):",
        "one timestamp of a millisecond's",
    ),
    Equivalent(
        ALLOCATOR,
        "return _clock(now) if self._guard.is_believed(now) else 0",
        "return _clock(now) if self._guard.is_believed(now) else -1",
        "the counter is far above either",
    ),
    Equivalent(
        ALLOCATOR,
        "return _clock(now) if self._guard.is_believed(now) else 0",
        "return _clock(now) if self._guard.is_believed(now) else 1",
        "the counter is far above either",
    ),
    Equivalent(
        ALLOCATOR,
        "self._appended = max(self._appended + 1, ahead_of_clock, ahead_of_counter)",
        "self._appended = max(self._appended + 2, ahead_of_clock, ahead_of_counter)",
        "any ceiling above the last one proves the lease",
    ),
    Equivalent(
        ATTRIBUTE_CALLS,
        "return Facts(node, path.node_path, table, 0, locks, retained)",
        "return Facts(node, path.node_path, table, -1, locks, retained)",
        "nobody asks how many children a table has",
    ),
    Equivalent(
        ATTRIBUTE_CALLS,
        "return Facts(node, path.node_path, table, 0, locks, retained)",
        "return Facts(node, path.node_path, table, 1, locks, retained)",
        "nobody asks how many children a table has",
    ),
    Equivalent(
        CLOCK_GUARD,
        "if base_us is None or offset_us > base_us:",
        "if base_us is None or offset_us >= base_us:",
        "an equal one changes nothing",
    ),
    Equivalent(
        JOURNAL,
        "self._append(changes[0] if len(changes) == 1 else Group(changes))",
        "self._append(changes[ -1] if len(changes) == 1 else Group(changes))",
        "there is one",
    ),
    Equivalent(
        CATALOG,
        "table=0,",
        "table= -1,",
        "only a place for the id, which the tree gives",
    ),
    Equivalent(
        CATALOG,
        "table=0,",
        "table= 1,",
        "only a place for the id, which the tree gives",
    ),
    Equivalent(
        CATALOG,
        "StoredTablet(TabletId(0), key, mounting.UNMOUNTED, None, Revision(0))",
        "StoredTablet(TabletId( -1), key, mounting.UNMOUNTED, None, Revision(0))",
        "only a place for the id, which the tree gives",
    ),
    Equivalent(
        CATALOG,
        "StoredTablet(TabletId(0), key, mounting.UNMOUNTED, None, Revision(0))",
        "StoredTablet(TabletId( 1), key, mounting.UNMOUNTED, None, Revision(0))",
        "only a place for the id, which the tree gives",
    ),
    Equivalent(
        CELLS,
        'f"An address is a URL of at most {ADDRESS_LENGTH_MAX} characters.", address=address[:80]',
        'f"An address is a URL of at most {ADDRESS_LENGTH_MAX} characters.", address=address[: 79]',
        "how much of it is shown is a choice",
    ),
    Equivalent(
        CELLS,
        'f"An address is a URL of at most {ADDRESS_LENGTH_MAX} characters.", address=address[:80]',
        'f"An address is a URL of at most {ADDRESS_LENGTH_MAX} characters.", address=address[: 81]',
        "how much of it is shown is a choice",
    ),
    Equivalent(
        HEARTBEATS,
        "if not is_empty or heartbeat.hold_ms <= 0 or self._is_closed:",
        "if not is_empty or heartbeat.hold_ms < 0 or self._is_closed:",
        "a wait of no time ends in the same step",
    ),
    Equivalent(
        HEARTBEATS,
        "if not is_empty or heartbeat.hold_ms <= 0 or self._is_closed:",
        "if not is_empty or heartbeat.hold_ms <= -1 or self._is_closed:",
        "a wait of no time ends in the same step",
    ),
    Equivalent(
        MASTER,
        "self._alone_at_us = now.instant_us + (settings.takeover_us if state.machine else 0)",
        "self._alone_at_us = now.instant_us + (settings.takeover_us if state.machine else -1)",
        "without a predecessor it is alone from the start",
    ),
    Equivalent(
        MOUNTING,
        "if source.lower < upper and lower < source.upper",
        "if source.lower < upper or lower < source.upper",
        "the sources of a tablet lie in its range",
    ),
    Equivalent(
        MOUNTING,
        "if source.lower < upper and lower < source.upper",
        "if source.lower <= upper and lower < source.upper",
        "the sources of a tablet lie in its range",
    ),
    Equivalent(
        MOUNTING,
        "if source.lower < upper and lower < source.upper",
        "if source.lower < upper and lower <= source.upper",
        "the sources of a tablet lie in its range",
    ),
    Equivalent(
        PROXY,
        "self._token = 0",
        "self._token = 1",
        "only equal tokens count",
    ),
    Equivalent(
        PROXY,
        "self._token = 0",
        "self._token = -1",
        "only equal tokens count",
    ),
    Equivalent(
        PROXY,
        "self._token += 1",
        "self._token += 2",
        "only equal tokens count",
    ),
    Equivalent(
        PROXY,
        "self._asked_us = 0",
        "self._asked_us = 1",
        "it is set with each request, and read only while there is one",
    ),
    Equivalent(
        PROXY,
        "self._asked_us = 0",
        "self._asked_us = -1",
        "it is set with each request, and read only while there is one",
    ),
    Equivalent(
        PATHS,
        "raise LimitExceeded(text, path=path[:80], length=len(name))",
        "raise LimitExceeded(text, path=path[: 81], length=len(name))",
        "how much of it is shown is a choice",
    ),
    Equivalent(
        PATHS,
        "raise LimitExceeded(text, path=path[:80], length=len(name))",
        "raise LimitExceeded(text, path=path[: 79], length=len(name))",
        "how much of it is shown is a choice",
    ),
    Equivalent(
        RECORDS,
        "ceiling: Timestamp = Timestamp(0)",
        "ceiling: Timestamp = Timestamp( 1)",
        "each state that is read from a store has its own",
    ),
    Equivalent(
        RECORDS,
        "ceiling: Timestamp = Timestamp(0)",
        "ceiling: Timestamp = Timestamp( -1)",
        "each state that is read from a store has its own",
    ),
    Equivalent(
        RECORDS,
        "last_id: int = 0",
        "last_id: int = -1",
        "each state that is read from a store has its own",
    ),
    Equivalent(
        RECORDS,
        "last_id: int = 0",
        "last_id: int = 1",
        "each state that is read from a store has its own",
    ),
    Equivalent(
        RECORDS,
        "last_revision: int = 0",
        "last_revision: int = -1",
        "each state that is read from a store has its own",
    ),
    Equivalent(
        RECORDS,
        "last_revision: int = 0",
        "last_revision: int = 1",
        "each state that is read from a store has its own",
    ),
    Equivalent(
        RECORDS,
        "revision: Revision = Revision(0)",
        "revision: Revision = Revision( -1)",
        "before the first command, a table has no cell that reports",
    ),
    Equivalent(
        RECORDS,
        "revision: Revision = Revision(0)",
        "revision: Revision = Revision( 1)",
        "before the first command, a table has no cell that reports",
    ),
    Equivalent(
        TABLES,
        "self.check_room(0, len(resharded.tablets) - len(table.tablets))",
        "self.check_room( -1, len(resharded.tablets) - len(table.tablets))",
        "a reshard adds no table, and the number of tables is in its limit",
    ),
    Equivalent(
        TREE_CALLS,
        "count = 1 if table is None else 1 + len(table.tablets)",
        "count = 2 if table is None else 1 + len(table.tablets)",
        "it only leaves out an id",
    ),
    Equivalent(
        TREE_CALLS,
        "raise LimitExceeded(text, path=path[:80])",
        "raise LimitExceeded(text, path=path[: 79])",
        "how much of it is shown is a choice",
    ),
    Equivalent(
        TABLES,
        "if known is not None and known < each.retained_timestamp <= MAX_TIMESTAMP:",
        "if known is not None and known <= each.retained_timestamp <= MAX_TIMESTAMP:",
        "an equal one changes nothing",
    ),
    Equivalent(
        ATTRIBUTES,
        "leap_days = day_of_era // 1460 - day_of_era // 36_524 + day_of_era // 146_096",
        "leap_days = day_of_era // 1459 - day_of_era // 36_524 + day_of_era // 146_096",
        "each day of an era has the same date",
    ),
    Equivalent(
        ATTRIBUTES,
        "leap_days = day_of_era // 1460 - day_of_era // 36_524 + day_of_era // 146_096",
        "leap_days = day_of_era // 1460 - day_of_era // 36523 + day_of_era // 146_096",
        "each day of an era has the same date",
    ),
    Equivalent(
        ATTRIBUTES,
        "leap_days = day_of_era // 1460 - day_of_era // 36_524 + day_of_era // 146_096",
        "leap_days = day_of_era // 1460 - day_of_era // 36_524 + day_of_era // 146095",
        "each day of an era has the same date",
    ),
    Equivalent(
        TREE_CALLS,
        "count = 1 if table is None else 1 + len(table.tablets)",
        "count = 1 if table is None else 2 + len(table.tablets)",
        "it only leaves out an id",
    ),
    Equivalent(
        TREE_CALLS,
        "raise LimitExceeded(text, path=path[:80])",
        "raise LimitExceeded(text, path=path[: 81])",
        "how much of it is shown is a choice",
    ),
    Equivalent(
        TREE_CALLS,
        "self._copied(table, 0)",
        "self._copied(table, 1)",
        "it only finds out whether a copy is refused",
    ),
    Equivalent(
        TREE_CALLS,
        "self._copied(table, 0)",
        "self._copied(table, -1)",
        "it only finds out whether a copy is refused",
    ),
    Equivalent(
        TREE_TRANSACTIONS,
        "max(self._deadlines_us[it.transaction] - now.instant_us, 0) // 1000,",
        "max(self._deadlines_us[it.transaction] - now.instant_us, 1) // 1000,",
        "a millisecond has more microseconds",
    ),
)
