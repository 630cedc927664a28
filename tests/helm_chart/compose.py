"""The compose file for one machine, made of what the chart renders.

Owns: the chart's values for a laptop, and what becomes of a pod there: its command and variables
stay, a claim and a Secret become volumes, a readiness probe becomes a health check, and a pod's
address becomes the name of a service. So what the chart's tests hold about commands holds here.
"""

import json
import re
from collections.abc import Iterator
from typing import Any, Final

from helm_chart.kubelet import Pod, command_of, entry_point
from helm_chart.rendering import NAMESPACE, Object, Rendered, container_of, pod_template, render

PORT: Final = "${DODONA_PORT:-8502}"
"""On this machine, of the gateway. Whoever has something else there sets the variable."""
HERE: Final = "127.0.0.1"
PREPARE: Final = "prepare"
KEY_VOLUME: Final = "cluster-key"
TOKEN_VOLUME: Final = "first-token"
BACKUPS: Final = "backups"
TOOLS: Final = "tools"
KEY_FILE: Final = "key"
PYTHON: Final = "/opt/dodona/bin/python"
LAPTOP: Final[dict[str, Any]] = {
    "logs": {"format": "text"},
    "networkPolicy": {"enabled": False},
    "master": {
        "settings": {"map_mib_max": 2048},
        "resources": {"limits": {"memory": "1Gi"}},
    },
    "proxy": {"replicas": 1, "settings": {"drain_ms": 0}},
    "node": {
        "replicas": 2,
        "settings": {"map_mib_max": 8192, "memory_mib_max": 512, "batch_mib_max": 128},
        "resources": {"limits": {"memory": "2Gi"}},
    },
    "gateway": {
        "replicas": 1,
        "firstToken": {"existingSecret": TOKEN_VOLUME},
        "settings": {
            "drain_ms": 0,
            "query_count_max": 1,
            "bodies_mib_max": 64,
            "answers_mib_max": 64,
            "transactions_mib_max": 128,
        },
        "resources": {"limits": {"memory": "4Gi"}},
    },
}
"""No balancer has to notice an end, and there is less memory."""

Service = dict[str, Any]

HEAD: Final = """\
# Dodona on one machine: a master, a proxy, two tablet nodes and a gateway, each in a container.
# `make chart` writes this file, from the templates of the Helm chart. How to use it is on the page
# docs/how-to/run-with-compose.md. Only the gateway can be reached, and only from this machine.
"""
NOTES: Final = {
    PREPARE: """\
Makes the cluster's key if there is none, and gives all volumes to the servers' user: a new volume
is root's. It is root, may only change owners, and has no network. It owns the key's folder while it
writes there: without more rights, root can write only what is its own.""",
    TOOLS: "The command line. Start it by `docker compose run --rm tools WORDS`.",
}
PREPARATION: Final = """\
import os, sys
from pathlib import Path
from dodona_wire.net.cluster_key import make_key

key_file, user = Path(sys.argv[1]), int(sys.argv[2])
os.chown(key_file.parent, os.getuid(), os.getgid())
make_key(key_file)
for path in (key_file, *sorted(key_file.parent.parent.iterdir())):
    os.chown(path, user, user)
"""
BEHIND: Final = {
    "proxy": ("master",),
    "node": ("master",),
    "gateway": ("master", "proxy", "node"),
}
"""The roles that a role starts after, and ends before. It does not wait until they are ready."""
CHECK_S: Final = 5
"""Between two health checks, each of which starts a Python."""


def compose_text() -> str:
    """The whole file."""
    return HEAD + "\n".join([*_lines(compose()), ""])


def compose() -> dict[str, Any]:
    """What is in the file."""
    rendered = render(LAPTOP)
    servers = dict(_servers(rendered))
    volumes = sorted({_source(it) for service in servers.values() for it in service["volumes"]})
    volumes.append(BACKUPS)
    own = {
        PREPARE: _prepare(rendered, volumes),
        **servers,
        TOOLS: _tools(rendered),
    }
    return {
        "name": "dodona",
        "x-server": _common(rendered),
        "services": own,
        "volumes": {it: {} for it in volumes},
    }


def _common(rendered: Rendered) -> Service:
    """What all servers have in common."""
    user = pod_template(rendered.find("StatefulSet", "-master"))["spec"]["securityContext"]
    return {
        "depends_on": _depends([]),
        "restart": "unless-stopped",
        # Nothing that the first process of a container gets before it listens for signals arrives.
        "init": True,
        "user": f"{user['runAsUser']}:{user['runAsGroup']}",
        **_closed(),
        "tmpfs": ["/tmp:size=64m"],
    }


def _depends(others: list[str]) -> Service:
    started = {it: {"condition": "service_started"} for it in others}
    return {PREPARE: {"condition": "service_completed_successfully"}, **started}


def _closed() -> Service:
    """As the containers of the chart: nothing of the image can be written, and no right grows."""
    return {
        "read_only": True,
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges:true"],
        "logging": {"driver": "json-file", "options": {"max-size": "10m", "max-file": "3"}},
    }


def _servers(rendered: Rendered) -> Iterator[tuple[str, Service]]:
    """By name, in the order in which they are read."""
    names = {_host(owner, None): _role(owner) for owner in _owners(rendered)}
    places = [(owner, index) for owner in _owners(rendered) for index in _indexes(owner)]
    for owner, index in places:
        names[_host(owner, index)] = _name(owner, index)
    for owner, index in places:
        yield _name(owner, index), _server(owner, index, names)


def _owners(rendered: Rendered) -> list[Object]:
    """Of servers, in the order of the roles."""
    kinds = {"master": "StatefulSet", "proxy": "Deployment", "node": "StatefulSet"}
    return [
        rendered.find(kind, f"-{role}") for role, kind in {**kinds, "gateway": "Deployment"}.items()
    ]


def _indexes(owner: Object) -> range:
    return range(owner["spec"]["replicas"])


def _role(owner: Object) -> str:
    role: str = owner["metadata"]["name"].rpartition("-")[2]
    return role


def _name(owner: Object, index: int) -> str:
    return f"{_role(owner)}-{index}" if _role(owner) == "node" else _role(owner)


def _host(owner: Object, index: int | None) -> str:
    """As the chart names a Service, or one pod of it."""
    service = owner["metadata"]["name"]
    pod = "" if index is None else f"{service}-{index}."
    return f"{pod}{service}.{NAMESPACE}.svc"


def _server(owner: Object, index: int, names: dict[str, str]) -> Service:
    container = container_of(owner)
    pod = Pod(f"{owner['metadata']['name']}-{index}", HERE, index)
    run = command_of(container, pod, {})
    hosts = re.compile("|".join(map(re.escape, sorted(names, key=len, reverse=True))))
    port = container["ports"][0]["containerPort"]
    given = run.words[len(entry_point(_role(owner))) :]
    words = [hosts.sub(lambda it: names[it[0]], it) for it in given]
    found = {
        **_image(container, _role(owner), is_built=index == 0),
        **_order(_role(owner), names),
        "command": [it.replace(f"http://{HERE}:{port}", f"http://{HERE}:{PORT}") for it in words],
        "environment": {it: run.environment[it] for it in run.environment if "POD_" not in it},
        "volumes": [*_mounts(container, _name(owner, index))],
        "healthcheck": _health(container, port),
        "stop_grace_period": f"{pod_template(owner)['spec']['terminationGracePeriodSeconds']}s",
        "mem_limit": container["resources"]["limits"]["memory"].removesuffix("i").lower(),
    }
    return found | ({"ports": [f"{HERE}:{PORT}:{port}"]} if _role(owner) == "gateway" else {})


def _order(role: str, names: dict[str, str]) -> Service:
    """Compose ends services in the opposite order of their start."""
    before = BEHIND.get(role, ())
    others = [it for it in dict.fromkeys(names.values()) if it.partition("-")[0] in before]
    return {"depends_on": _depends([it for it in others if it != "node"])} if before else {}


def _image(container: Object, role: str, *, is_built: bool = True) -> Service:
    """One service builds the image. Two builds at once can't both write it."""
    if not is_built:
        return {"image": container["image"], "pull_policy": "never"}
    build = {"context": "../..", "dockerfile": f"helm/docker/{role}.Dockerfile"}
    return {"image": container["image"], "build": build}


def _mounts(container: Object, service: str) -> Iterator[str]:
    """Volumes: a claim is the service's own, and the key is everybody's."""
    for mount in container["volumeMounts"]:
        if mount["name"] == "tmp":
            continue
        is_claim = mount["name"] == "data"
        source = f"{service}-data" if is_claim else mount["name"]
        # The gateway makes the first token itself, where there is none.
        is_written = is_claim or source == TOKEN_VOLUME
        yield f"{source}:{mount['mountPath']}" + ("" if is_written else ":ro")


def _source(mount: str) -> str:
    return mount.partition(":")[0]


def _health(container: Object, port: int) -> Service:
    """Ask for the page of the readiness probe. What starts may take as long as in the chart."""
    probe, start = container["readinessProbe"], container["startupProbe"]
    code = (
        f"import http.client, sys; it = http.client.HTTPConnection('{HERE}', {port}); "
        f"it.request('GET', '{probe['httpGet']['path']}'); sys.exit(it.getresponse().status != 200)"
    )
    return {
        "test": ["CMD", PYTHON, "-I", "-c", code],
        "interval": f"{CHECK_S}s",
        "timeout": f"{probe['timeoutSeconds']}s",
        "retries": probe["failureThreshold"],
        "start_period": f"{start['periodSeconds'] * start['failureThreshold']}s",
    }


def _prepare(rendered: Rendered, volumes: list[str]) -> Service:
    """A container that ends, before all servers."""
    owner = rendered.find("StatefulSet", "-master")
    user = pod_template(owner)["spec"]["securityContext"]["runAsUser"]
    return {
        **_image(container_of(owner), "master", is_built=False),
        "entrypoint": [PYTHON, "-I", "-c", PREPARATION],
        "command": [f"/volumes/{KEY_VOLUME}/{KEY_FILE}", str(user)],
        "restart": "no",
        "user": "0:0",
        "network_mode": "none",
        **_closed(),
        "cap_add": ["CHOWN"],
        "volumes": [f"{it}:/volumes/{it}" for it in volumes],
    }


def _tools(rendered: Rendered) -> Service:
    """Commands get the key from its file, as a variable."""
    container = container_of(rendered.find("Deployment", "-tools"))
    mount = f"/etc/dodona/{KEY_VOLUME}"
    script = (
        f'DODONA_CLUSTER_KEY=$$(cat {mount}/{KEY_FILE}) exec {PYTHON} -I -m dodona_local.cli "$$@"'
    )
    return {
        **_image(container, TOOLS),
        "profiles": [TOOLS],
        "restart": "no",
        "entrypoint": ["/bin/sh", "-c", script, "dodona"],
        "command": ["cluster", "status"],
        "environment": {"DODONA_URL": "http://master:8500"},
        "volumes": [f"{KEY_VOLUME}:{mount}:ro", f"{BACKUPS}:/{BACKUPS}"],
        "mem_limit": container["resources"]["limits"]["memory"].removesuffix("i").lower(),
    }


# ---- YAML


def _lines(found: dict[str, Any]) -> Iterator[str]:
    """YAML of maps, whose other values are as in JSON."""
    for name, value in found.items():
        yield ""
        if name == "x-server":
            yield f"{name}: &server"
            yield from _block(value, 1)
        elif name == "services":
            yield "services:"
            for service, its in value.items():
                yield from _service(service, its)
        elif isinstance(value, dict):
            yield f"{name}:"
            yield from _block(value, 1)
        else:
            yield f"{name}: {json.dumps(value)}"


def _service(name: str, service: Service) -> Iterator[str]:
    yield ""
    for line in NOTES.get(name, "").splitlines():
        yield f"  # {line}"
    yield f"  {name}:"
    if name != PREPARE:
        yield "    <<: *server"
    yield from _block(service, 2)


def _block(found: dict[str, Any], depth: int) -> Iterator[str]:
    indent = "  " * depth
    for name, value in found.items():
        if isinstance(value, dict) and value:
            yield f"{indent}{name}:"
            yield from _block(value, depth + 1)
        elif isinstance(value, list) and len(value) > 1:
            yield f"{indent}{name}:"
            for it in value:
                yield from _item(it, f"{indent}  ")
        else:
            yield f"{indent}{name}: {json.dumps(value)}"


def _item(text: str, indent: str) -> Iterator[str]:
    """Of a list. Text of several lines stays readable."""
    if "\n" not in text:
        yield f"{indent}- {json.dumps(text)}"
        return
    yield f"{indent}- |"
    yield from (f"{indent}  {line}".rstrip() for line in text.splitlines())
