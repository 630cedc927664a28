"""A whole Dodona: master, proxies and nodes, their faults, and a look inside when all is over.

Owns: which processes exist, how faults are carried out, and the final dump. Whatever is wrong when
the cluster is healed ends there; clocks stay where they are, and go on as time does.
"""

from collections import Counter
from collections.abc import Callable
from functools import partial

from msgspec.structs import replace

from dodona.types import TIMESTAMPS_PER_REQUEST_MAX, CellId, TabletId, Timestamp
from dodona_loadtest.checkers.violation import Violation
from dodona_loadtest.histories.history import Acquisition, Crash, RowKey, Version, frozen
from dodona_oracle.core.allocator import AllocatorSettings
from dodona_tablets.core.cell.limits import CellLimits
from dodona_tablets.core.cell.outcomes import Outcome
from dodona_tablets.core.node import NodeCore
from dodona_tablets.core.tablet.tablet import Tablet
from dodona_wire.cores.fault_points import FaultAt, no_faults
from dodona_wire.messages.base import Failure
from simulator.driver import ClientProcess
from simulator.faults import Fault, FaultKind, Options
from simulator.host import Host
from simulator.network import Network
from simulator.object_node import ObjectNodeHost
from simulator.object_store import SimulatedObjects
from simulator.servers import CoreFactory, MasterHost, NodeHost, ProxyHost
from simulator.transport import Transport
from simulator.world import PPM, World

FUSE_EFFECTS_MAX = 40
"""How many effects a process carries out at most before a lit fuse ends it."""

CLOCKS_APART_US = 1_000_000
"""How far the clocks of two machines may be apart."""

TIDY = {"clean_period_ms": 1_000, "reader_lease_ms_max": 1_000, "reader_renewal_ms_max": 1_000}

Disturb = Callable[[str, str], None]
"""Takes a link's source and target."""

TIGHT_CEILING = AllocatorSettings(
    window_us=20_000, renew_us=5_000, margin_count=TIMESTAMPS_PER_REQUEST_MAX
)


class Cluster:
    """The processes of one run."""

    def __init__(
        self,
        world: World,
        options: Options,
        acquisitions: list[Acquisition],
        make_core: CoreFactory = NodeCore,
        fault_at: FaultAt = no_faults,
    ) -> None:
        self.world = world
        self.options = options
        self.network = Network(world, options.network.delay_us_mean)
        self.transport = Transport(world, self.network)
        disk = options.disk.calm
        tight = TIGHT_CEILING if options.is_ceiling_tight else None
        self.master = MasterHost(self.transport, disk, options.call_timeout_us, tight, fault_at)
        self.proxies = [
            ProxyHost(self.transport, f"proxy-{index}", options.call_timeout_us, fault_at)
            for index in range(options.proxy_count)
        ]
        self.objects = SimulatedObjects(world)
        make_node = ObjectNodeHost if options.objects.is_there else NodeHost
        self.nodes: list[NodeHost] = [
            make_node(
                self.transport,
                CellId(index),
                disk,
                options.call_timeout_us,
                _limits_of(options),
                options.has_one_question,
                acquisitions,
                make_core,
                fault_at,
            )
            for index in range(options.cell_count)
        ]
        self._object_nodes = [it for it in self.nodes if isinstance(it, ObjectNodeHost)]
        for node in self._object_nodes:
            node.objects = self.objects
        self.hosts: dict[str, Host] = {
            host.name: host for host in (self.master, *self.proxies, *self.nodes)
        }
        addresses = [proxy.address for proxy in self.proxies]
        self.clients = [
            ClientProcess(self.transport, f"client-{index}", addresses, options.call_timeout_us)
            for index in range(options.client_count)
        ]
        self._displaced: MasterHost | None = None
        self.processes: dict[str, Host | ClientProcess] = {
            **self.hosts,
            **{client.name: client for client in self.clients},
        }
        self.scheduled_counts: Counter[str] = Counter()
        """The seed's faults that were carried out, by kind and by what they befell."""
        self._drift_counts: Counter[str] = Counter()
        self._is_healed = False
        self._random = world.stream("cluster")

    def start(self) -> None:
        for host in self.hosts.values():
            host.start()

    # Faults

    @property
    def fault_counts(self) -> dict[str, int]:
        """All that went wrong, by kind: what was scheduled, and what rates brought about."""
        counts = self.scheduled_counts + self._drift_counts
        counts += self.network.fault_counts + self.transport.fault_counts
        counts += self.objects.fault_counts
        for host in self.hosts.values():
            if host.disk is not None:
                counts += host.disk.fault_counts
        return dict(sorted(counts.items()))

    def schedule_faults(self) -> None:
        """From now on the seed's faults happen, each at its instant."""
        self.network.storm(self.options.network)
        for host in self.hosts.values():
            if host.disk is not None:
                host.disk.storm(self.options.disk)
        self.objects.storm(self.options.objects)
        for node in self._object_nodes:
            node.storm(self.options.objects)
        self._let_clocks_drift()
        self._skew_clocks()
        for fault in self.options.faults:
            self.world.after(fault.at_us, partial(self._cause, fault))

    def _let_clocks_drift(self) -> None:
        random, options = self.world.stream("clocks"), self.options.clocks
        for name, process in self.processes.items():
            drift = random.choice((-1, 0, 1)) * options.wall_drift_max
            drift_ppm = round(random.choice((-1, 0, 1)) * options.instant_drift_max * PPM)
            rate = self.options.master_clock_rate if name == "master" else 1.0 + drift
            process.clock.set_rate(rate)
            process.clock.set_instant_drift(drift_ppm)
            self._drift_counts["wall clock drifts"] += rate != 1.0
            self._drift_counts["monotonic clock drifts"] += drift_ppm != 0

    def _skew_clocks(self) -> None:
        skews, skew_us_max = self.world.stream("skews"), self.options.client_skew_us_max
        for client in self.clients:
            client.clock.step(skews.randint(-skew_us_max, skew_us_max))

    def _cause(self, fault: Fault) -> None:
        if self._is_healed:
            return
        match fault.kind:
            case "crash":
                self._crash(fault)
            case "fuse":
                count = 1 + fault.at_us % FUSE_EFFECTS_MAX
                self.hosts[fault.target].doom.light_fuse(count, partial(self._crash, fault))
            case "append" | "verdict":
                doom = self.hosts[fault.target].doom
                doom.die_after(fault.kind, partial(self._crash, fault))
            case "takeover":
                self._take_over(fault)
            case "absent_disk":
                self._take_away_disk(fault)
            case "pause":
                self._pause(fault)
            case "stall" | "full_disk":
                self._spoil_disk(fault)
            case "clock_step":
                self.processes[fault.target].clock.step(fault.duration_us)
                self._count(fault)
            case _:
                self._disturb_links(fault)

    def _count(self, fault: Fault) -> None:
        self.scheduled_counts[f"{fault.kind} {fault.shape}"] += 1

    def _crash(self, fault: Fault) -> None:
        host = self.hosts[fault.target]
        if not host.is_up:
            return
        host.crash()
        self._count(fault)
        if isinstance(host, NodeHost) and self._random.random() < self.options.moves_rate:
            host.move(f"{host.name}:{8700 + host.crash_count}")
        self.world.after(fault.duration_us, host.start_if_down)

    def _take_over(self, fault: Fault) -> None:
        """The process that had the store stands still for a while, or not, and is ended at last."""
        before = self.master
        if not before.is_up:
            return
        self._end_displaced()
        if fault.at_us % 2:
            before.pause(fault.duration_us)
        self.master = self.hosts["master"] = self.processes["master"] = before.displace()
        self.master.clock.set_rate(self.options.master_clock_rate)
        self.master.clock.step(self._random.randrange(-CLOCKS_APART_US, CLOCKS_APART_US))
        self._displaced = before
        self.master.start_if_down()
        self.world.after(2 * fault.duration_us, before.end)
        self._count(fault)

    def _end_displaced(self) -> None:
        if self._displaced is not None:
            self._displaced.end()

    def _take_away_disk(self, fault: Fault) -> None:
        node = self.hosts[fault.target]
        assert isinstance(node, NodeHost)
        if node.is_up:
            node.crash()
            node.take_away_disk()
            node.start()
            self.world.after(fault.duration_us, partial(self._return_disk, node))
            self._count(fault)

    def _return_disk(self, node: NodeHost) -> None:
        if not node.has_empty_disk:
            return
        if node.is_up:
            node.crash()
            self.world.after(1_000, node.start_if_down)
        node.return_disk()

    def _pause(self, fault: Fault) -> None:
        process = self.processes[fault.target]
        if isinstance(process, ClientProcess) or process.is_up:
            process.pause(fault.duration_us)
            self._count(fault)

    def _spoil_disk(self, fault: Fault) -> None:
        disk = self.hosts[fault.target].disk
        assert disk is not None, f"{fault.target} has no disk"
        (disk.stall if fault.kind == "stall" else disk.fill)(fault.duration_us)
        self._count(fault)

    def _disturb_links(self, fault: Fault) -> None:
        begin, end = self._disturbance(fault.kind)
        for link in fault.links:
            begin(*link)

        def end_all() -> None:
            for link in fault.links:
                end(*link)

        self.world.after(fault.duration_us, end_all)
        self._count(fault)

    def _disturbance(self, kind: FaultKind) -> tuple[Disturb, Disturb]:
        """What begins it on a link, and what ends it."""
        network, transport = self.network, self.transport
        match kind:
            case "cut" | "partition":
                return network.cut, network.mend
            case "clog" | "swizzle":
                return network.clog, network.unclog
            case "half_open":
                return transport.unheard.add, transport.unheard.remove
            case _:
                assert kind == "unanswered", f"{kind} is no fault of links"
                return transport.unanswered.add, transport.unanswered.remove

    def heal(self) -> None:
        """The safety phase is over: everything is up, connected and quick from now on."""
        self._is_healed = True
        self._end_displaced()
        for node in self.nodes:
            self._return_disk(node)
        self.transport.calm()
        self.objects.calm()
        for node in self._object_nodes:
            node.calm()
        for process in self.processes.values():
            process.clock.set_rate(1.0)
            process.clock.set_instant_drift(0)
            process.spare()
        for host in self.hosts.values():
            if host.disk is not None:
                host.disk.calm()
            host.start_if_down()

    def restart_nodes(self) -> None:
        """Every node crashes and recovers: what is dumped afterwards came from its log."""
        for node in self.nodes:
            node.crash()
            node.start()

    def close(self) -> None:
        """Remove what is outside of memory."""
        for node in self._object_nodes:
            node.close()

    # A look inside

    def unresolved(self) -> list[str]:
        """Every transaction that a cell still has to bring to an end, and every lock left."""
        found = []
        for node in self.nodes:
            if not node.is_up:
                found.append(f"{node.name} is down")
                continue
            cell = node.core.cell
            found += [
                f"{node.name}: transaction {alive.id} is {alive.state.value}"
                for alive in cell.transactions.values()
            ]
            for tablet in cell.tablets.values():
                locked_count = tablet.locked_count()
                if locked_count:
                    found.append(f"{node.name}: {locked_count} rows are locked")
        return found

    def lines_left(self) -> list[str]:
        """Who waits for early locks, and owners whose lease is over. An owner that has vanished
        keeps its rows until then."""
        return [
            f"{node.name}: owner {owner} is in line"
            for node in self.nodes
            for owner, it in (node.core.cell.early.requests.items() if node.is_up else ())
            if it.is_waiting or it.leased_until_us < node.core.cell.now.instant_us
        ]

    def line_violations(self) -> list[Violation]:
        """What was wrong with early locks while the run lasted."""
        return [it for node in self.nodes for it in node.lines.violations]

    def loads_left(self) -> list[str]:
        """Bulk loads that are open in a cell."""
        return [
            f"{node.name}: load {load} is open"
            for node in self.nodes
            for load in (node.core.cell.loads.open if node.is_up else ())
        ]

    def stray_files(self) -> list[str]:
        """Files of chunks that nobody has any part of."""
        return [
            f"{node.name}: chunk {number} is nobody's"
            for node in self.nodes
            for number in node.stray_chunks()
        ]

    def stray_objects(self) -> list[str]:
        """Chunks in the object store that no log names."""
        return [
            f"{node.name}: object {number} is nobody's"
            for node in self.nodes
            for number in node.stray_objects()
        ]

    def strays(self) -> list[str]:
        """Tablets that a cell keeps though no table has them, or takes their rows over."""
        tablets = [it for table in self.master.stored().tables for it in table.tablets]
        needed = {it.tablet for it in tablets}
        needed |= {source.tablet for it in tablets for source in it.sources}
        return [
            f"{node.name}: tablet {tablet} is nobody's"
            for node in self.nodes
            for tablet in node.core.cell.tablets
            if tablet not in needed
        ]

    def kept(self) -> dict[str, list[TabletId]]:
        """By node, all tablets that it has, served or not."""
        return {node.name: sorted(node.core.cell.tablets) for node in self.nodes}

    def dropped_count(self) -> int:
        """Tablets that the nodes have forgotten, each since its last start."""
        return sum(node.core.statistics().tablets_dropped for node in self.nodes)

    def compaction_count(self) -> int:
        """How many compactions ended in the nodes, each since its last start."""
        return sum(node.core.statistics().compacted for node in self.nodes)

    def timestamps_ahead_us(self) -> int:
        """For how long timestamps will stand still: the master's clock stepped back from there."""
        newest_us: int = self.master.core.statistics().newest_us
        return max(0, newest_us - self.master.clock.now().unix_us)

    def disagreements(self) -> list[Violation]:
        """Transactions of which two cells remember different ends."""
        ends: dict[int, tuple[str, Outcome]] = {}
        found = []
        for node in self.nodes:
            for transaction, outcome in node.core.cell.outcomes.items():
                other, known = ends.setdefault(transaction, (node.name, outcome))
                if _end_of(known) != _end_of(outcome):
                    text = f"{transaction}: {known} at {other}, {outcome} at {node.name}"
                    found.append(Violation("OUTCOME", text))
        return found

    def starting(self) -> list[str]:
        """Nodes that do not serve yet."""
        return [f"{node.name} is starting" for node in self.nodes if not node.core.is_serving]

    def node_crashes(self) -> list[Crash]:
        """When each cell's process ended."""
        return [Crash(node.cell, at_us) for node in self.nodes for at_us in node.crash_instants_us]

    def dump(self) -> list[Version]:
        """All versions of all rows of all tablets that are served, in the history's words."""
        versions = []
        for node in self.nodes:
            with node.all_rows():
                for tablet in node.core.cell.tablets.values():
                    if tablet.is_mounted:  # what others have is another tablet's, or nobody's
                        versions += _versions_of(tablet)
        return versions


def _versions_of(tablet: Tablet) -> list[Version]:
    path, schema = tablet.assignment.path, tablet.schema
    versions = []
    for key, entries in tablet.dump():
        row = RowKey(path, bytes(key))
        for timestamp, mask, values in entries:
            names = [column.name for column in schema.columns_of(mask)]
            columns = tuple(sorted(zip(names, map(frozen, values), strict=True)))
            versions.append(Version(row, timestamp, columns if mask else None))
    return versions


def _end_of(outcome: Outcome) -> Timestamp | None:
    """None is no commit: why it was refused is each cell's own."""
    return None if isinstance(outcome, Failure) else outcome


def _limits_of(options: Options) -> CellLimits:
    """Those of a cell, and of what it keeps of an object store's chunks."""
    limits, kept_bytes = _cell_limits_of(options), options.objects.cache_bytes_max
    if not options.objects.is_there:
        return limits
    return replace(
        limits,
        has_object_store=True,
        chunk_cache_bytes_max=kept_bytes or None,
        chunk_wait_ms_max=3_000,
    )


def _cell_limits_of(options: Options) -> CellLimits:
    """Production's, but for runs in which transactions live shortly and are soon forgotten. There
    the log is cut, too, and stores in memory are let go of before the run ends. So are old
    versions and times of locks, where no clock of a client matters: for a late one's sake they
    are kept as long as it may be late. Memory has production's bound then, and where the master's
    clock stands still: what is flushed stays in it until time has passed, and writes are refused
    until then."""
    if options.transaction_life_s_max == CellLimits().transaction_life_s_max:
        return CellLimits()
    is_late = options.clock_difference_s_max > options.transaction_life_s_max
    is_let_go_soon = options.master_clock_rate > 0 and not is_late
    memory_bytes_max = options.memory_bytes_max if is_let_go_soon else 0
    limits = CellLimits(
        checkpoint_period_ms=3_000,
        quiet_tick_ms=150,
        compaction_round_ms=100,
        transaction_life_s_max=options.transaction_life_s_max,
        client_clock_difference_s_max=options.clock_difference_s_max,
        forget_slack_s=1,
        memory_bytes_max=memory_bytes_max or CellLimits().memory_bytes_max,
        watermark_period_ms=200,
        blocked_wait_ms_max=1_000,
        oracle_wait_ms_max=1_000,
    )
    return replace(limits, **TIDY) if options.is_tidied else limits
