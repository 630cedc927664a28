"""Find the Java that Spark would start, and say what is missing.

Owns: the version that Spark needs, and where Spark looks for Java. Spark itself only reports that
its gateway ended. Must not import: pyspark, which is large and may be absent.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from typing import Final

VERSION_MIN: Final = 17
"""Of Java, for Spark 4."""
ANSWER_S_MAX: Final = 20.0
"""The first start of a JVM on a busy machine takes seconds."""
REMEDY: Final = "install openjdk-17-jre-headless, or set JAVA_HOME"
_VERSION: Final = re.compile(r'version "((?:1\.)?(\d+)[^"]*)"')


def missing_java(environment: Mapping[str, str] = os.environ) -> str | None:
    """Return what keeps Spark from starting, and what to do, as a sentence without a full stop.
    None if the Java that Spark would start is new enough."""
    program = _program(environment)
    if program is None:
        home = environment.get("JAVA_HOME")
        return _lacking(f"there is no {home}/bin/java (JAVA_HOME)" if home else "PATH has none")
    said = _say_version(program, environment)
    found = _VERSION.search(said)
    if found is None:
        return _lacking(f"{program} does not say its version")
    if int(found[2]) < VERSION_MIN:
        return _lacking(f"{program} is Java {found[1]}")
    return None


def _lacking(fact: str) -> str:
    return f"Spark needs Java {VERSION_MIN} or newer, and {fact}: {REMEDY}"


def _program(environment: Mapping[str, str]) -> str | None:
    """Return the program that Spark's own scripts start: with JAVA_HOME, they look only there."""
    if home := environment.get("JAVA_HOME"):
        return shutil.which(os.path.join(home, "bin", "java"))
    return shutil.which("java", path=environment.get("PATH"))


def _say_version(program: str, environment: Mapping[str, str]) -> str:
    """Return what `java -version` prints; nothing if it does not start or does not end."""
    try:
        ended = subprocess.run(
            [program, "-version"],
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=ANSWER_S_MAX,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return ended.stderr + ended.stdout
