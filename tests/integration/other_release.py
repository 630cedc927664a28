"""Programs of an older release: its packages in place of this checkout's, with the same libraries.

Owns: `python -m integration.other_release ROOT SWITCH NAME MODULE ARGUMENT...`, which runs a module
as of the release in the folder ROOT as long as the file SWITCH has a line NAME, and as of this
checkout otherwise. It looks at each start, so that a server is upgraded by being started again.
An archive is what `git archive COMMIT FOLDER... | xz -9` makes of all packages that servers import.
Must not import anything of Dodona: that comes from the one release or from the other.
"""

import runpy
import sys
import tarfile
from pathlib import Path
from typing import Final

RELEASES: Final = sorted((Path(__file__).parent / "releases").glob("*.tar.xz"))
"""Each named by its commit."""
TREES: Final = ("client", "oracle", "tablets")


def unpack(release: Path, folder: Path) -> Path:
    """Its root."""
    with tarfile.open(release) as archive:
        archive.extractall(folder, filter="data")
    return folder


def paths_of(root: Path) -> list[str]:
    """Where its packages are."""
    return [str(root / it) for it in TREES]


def main() -> None:
    root, switch, name, module, *arguments = sys.argv[1:]
    if name in Path(switch).read_text().splitlines():
        sys.path[:0] = paths_of(Path(root))
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
