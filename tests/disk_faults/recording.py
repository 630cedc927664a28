"""Recordings that are whole: what a program did to a folder, checked against the folder.

Owns: that check. What the recorded operations come to must be what is in the folder afterwards,
byte by byte: a call that the tracer missed, or took for another, is found here.
"""

from pathlib import Path

from disk_faults.disk import Disk, Kept
from disk_faults.images import read_image
from disk_faults.operations import Mapped, Recording
from disk_faults.ptrace import Untraceable
from disk_faults.tracer import Program, Saboteur, run_traced


def record(
    program: Program,
    folder: Path,
    recording: Recording | None = None,
    saboteur: Saboteur | None = None,
) -> Recording:
    """Run the program under the tracer. → the recording, or the one that was given, gone on with.
    Raises Untraceable, also where it is not whole."""
    recording = run_traced(program, folder, recording, saboteur)
    disk = Disk()
    disk.do(recording.operations)
    recorded, found = disk.image(Kept()), read_image(folder)
    mapped = {it.file for it in recording.operations if isinstance(it, Mapped)}
    if sorted(recorded.folders) != sorted(found.folders):
        raise Untraceable(f"recorded were the folders {recorded.folders}, not {found.folders}")
    for name in sorted({*recorded.files, *found.files}):
        is_mapped = recording.number_of(folder / name) in mapped
        if not is_mapped and recorded.files.get(name) != found.files.get(name):
            raise Untraceable(f"not all was seen that was done to {name}")
    return recording
