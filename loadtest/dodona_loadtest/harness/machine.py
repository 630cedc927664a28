"""Facts about this machine, which each figure needs to mean anything."""

import os
import platform
import time
from pathlib import Path
from statistics import median
from typing import Final

PROBE_WRITES: Final = 200
PROBE_BYTES: Final = 128
IDLE_PROBE_S: Final = 1.0


def machine_facts(folder: Path) -> list[tuple[str, str]]:
    """Return names and values of facts. `folder` is where the contenders keep their data."""
    fdatasync = f"{_fdatasync_us(folder):.0f} µs (p50) for a 128-byte append with fdatasync"
    return [
        ("processor", processor_name()),
        ("memory", f"{_memory_gib():.0f} GiB"),
        ("kernel", f"{platform.system()} {platform.release()}"),
        ("Python", f"{platform.python_implementation()} {platform.python_version()}"),
        ("disk", f"{_file_system(folder)}; {fdatasync}"),
        ("at the start", f"{_idle_share():.0%} of the processor time was free"),
    ]


def processor_name() -> str:
    """Return the model of the processor, and how many cores it has."""
    return f"{_cpu_model()}, {os.cpu_count()} cores"


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _memory_gib() -> float:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)


def _file_system(folder: Path) -> str:
    """Return the type of the file system: on a tmpfs no commit is durable."""
    best, kind = "", "unknown"
    resolved = str(folder.resolve())
    for line in Path("/proc/mounts").read_text().splitlines():
        _, mount_point, file_system, *_ = line.split()
        inside = resolved == mount_point or resolved.startswith(mount_point.rstrip("/") + "/")
        if inside and len(mount_point) >= len(best):
            best, kind = mount_point, file_system
    return kind


def _fdatasync_us(folder: Path) -> float:
    """Return the least time of a durable commit that shares its sync with no other."""
    path = folder / "fdatasync-probe"
    durations = []
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
    try:
        for _ in range(PROBE_WRITES):
            started_ns = time.perf_counter_ns()
            os.write(descriptor, bytes(PROBE_BYTES))
            os.fdatasync(descriptor)
            durations.append((time.perf_counter_ns() - started_ns) / 1e3)
    finally:
        os.close(descriptor)
        path.unlink()
    return median(durations)


def _idle_share() -> float:
    """Return the share of the machine that was free for a second: the figures are worth as much."""
    idle_before, all_before = _processor_ticks()
    time.sleep(IDLE_PROBE_S)
    idle, all_ticks = _processor_ticks()
    return (idle - idle_before) / max(1, all_ticks - all_before)


def _processor_ticks() -> tuple[int, int]:
    """Return idle ticks (with waits for a disk) and all ticks since the machine started."""
    with Path("/proc/stat").open() as stat:
        ticks = [int(word) for word in stat.readline().split()[1:9]]
    return ticks[3] + ticks[4], sum(ticks)
