"""A program that may have few files open.

Owns: `python -m integration.limited COUNT MODULE ARGUMENT...`, which runs a module under that
limit: the hard one, since servers take all that they may have. Must not import anything of Dodona:
that is the module's.
"""

import resource
import runpy
import sys


def main() -> None:
    count, module, *arguments = sys.argv[1:]
    resource.setrlimit(resource.RLIMIT_NOFILE, (int(count), int(count)))
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
