"""A stand-in for curl, for machines that have none: the few options that the documents use.

Owns: their meaning. A test's shell calls it as `curl`.
"""

import argparse
import base64
import sys
from pathlib import Path
from typing import Any

import httpx

JSON = "application/json"


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("-s", action="store_true")
    parser.add_argument("-X", dest="method")
    parser.add_argument("-H", dest="headers", action="append", default=[])
    parser.add_argument("-u", dest="shown")
    parser.add_argument("-o", dest="output")
    parser.add_argument("-w", dest="written", default="")
    parser.add_argument("--json")
    parser.add_argument("--data-binary", dest="data")
    parser.add_argument("url")
    asked = parser.parse_args(arguments)
    headers = dict(it.split(": ", 1) for it in asked.headers)
    if asked.shown is not None:
        encoded = base64.b64encode(asked.shown.encode()).decode()
        headers["Authorization"] = f"Basic {encoded}"
    content: Any = None
    if asked.json is not None:
        content = asked.json.encode()
        headers = {"Content-Type": JSON, "Accept": JSON, **headers}
    elif asked.data is not None:
        assert asked.data.startswith("@")
        content = Path(asked.data[1:]).read_bytes()
    method = asked.method or ("GET" if content is None else "POST")
    url = asked.url.replace("\\[", "%5B").replace("\\]", "%5D")  # as curl takes brackets
    answer = httpx.request(method, url, content=content, headers=headers, timeout=30)
    if asked.output is None:
        sys.stdout.write(answer.text)
    else:
        Path(asked.output).write_bytes(answer.content)
    sys.stdout.write(
        asked.written.replace("%{http_code}", str(answer.status_code)).replace("\\n", "\n")
    )


if __name__ == "__main__":
    main(sys.argv[1:])
