"""A release's pods as processes of this machine: what a kubelet, a DNS and a volume would do.

Owns: an address on loopback and a folder for each pod, and the processes. Commands, variables,
probes and periods are those that the chart rendered; names become addresses, and paths folders.
"""

import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Self

import httpx

from helm_chart.kubelet import Command, Pod, command_of
from helm_chart.rendering import NAMESPACE, Object, Rendered, container_of, pod_owners, pod_template

READY_S_MAX: Final = 60.0
POLL_S: Final = 0.05
COMMAND_S_MAX: Final = 120.0
Secrets = dict[tuple[str, str], str]


class RunningPod:
    """One pod of a server."""

    def __init__(self, owner: Object, pod: Pod, folder: Path) -> None:
        self.owner = owner
        self.pod = pod
        self.folder = folder
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def container(self) -> Object:
        return container_of(self.owner)

    @property
    def log(self) -> Path:
        return self.folder / "log"

    @property
    def url(self) -> str:
        return f"http://{self.pod.address}:{self.container['ports'][0]['containerPort']}"

    def is_ready(self) -> bool:
        """As its probe finds."""
        path = self.container["readinessProbe"]["httpGet"]["path"]
        with suppress(httpx.HTTPError):
            return httpx.get(self.url + path).status_code == 200
        return False

    def wait_until_ready(self) -> None:
        """Raises TimeoutError, with its last words."""
        deadline = time.monotonic() + READY_S_MAX
        while not self.is_ready():
            assert self.process is not None
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise TimeoutError(f"{self.pod.name} is not ready: {self.log.read_text()[-2000:]}")
            time.sleep(POLL_S)

    def stop(self) -> int:
        """As Kubernetes does, within the period that the pod has. → its exit status. Raises
        TimeoutExpired."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        spec = pod_template(self.owner)["spec"]
        return self.process.wait(spec["terminationGracePeriodSeconds"])


class Release:
    """All pods of a release, in a `with` block. `secrets` are the values of Secrets' keys."""

    def __init__(self, rendered: Rendered, secrets: Secrets, folder: Path, network: str) -> None:
        """`network` is the beginning of the addresses, as in `127.7.0`."""
        self.rendered = rendered
        self.network = network
        self._secrets = secrets
        self._folder = folder
        self._addresses: dict[str, str] = {}
        self.pods: dict[str, RunningPod] = {}
        owners = [it for it in rendered.objects if it["kind"] in ("StatefulSet", "Deployment")]
        for owner in owners:
            if "ports" not in pod_template(owner)["spec"]["containers"][0]:
                continue  # it serves nobody
            for index in range(owner["spec"]["replicas"]):
                self._add(owner, index, f"{network}.{len(self.pods) + 1}")

    def _add(self, owner: Object, index: int, address: str) -> None:
        service = owner["metadata"]["name"]
        pod = Pod(f"{service}-{index}", address, index if owner["kind"] == "StatefulSet" else None)
        self._addresses[f"{pod.name}.{service}.{NAMESPACE}.svc"] = address
        self._addresses.setdefault(f"{service}.{NAMESPACE}.svc", address)
        folder = self._folder / pod.name
        folder.mkdir()
        self.pods[pod.name] = RunningPod(owner, pod, folder)

    def __enter__(self) -> Self:
        try:
            for pod in self.pods.values():
                self.start(pod)
            for pod in self.pods.values():
                pod.wait_until_ready()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for pod in self.pods.values():
            if pod.process is not None and pod.process.poll() is None:
                pod.process.kill()
                pod.process.wait()

    def of(self, role: str) -> list[RunningPod]:
        """By their component."""
        return [
            it for it in self.pods.values() if it.owner["metadata"]["name"].endswith(f"-{role}")
        ]

    def start(self, pod: RunningPod) -> None:
        """Its process, with the volume that it had, if it had one."""
        words, environment = self._prepared(pod.owner, pod.pod, pod.folder)
        with pod.log.open("ab") as log:
            pod.process = subprocess.Popen(words, env=environment, stderr=log)

    def run(self, kind: str, name: str) -> subprocess.CompletedProcess[str]:
        """A pod that ends by itself: of a CronJob, or a test's."""
        (owner,) = [it for it in pod_owners(self.rendered) if it["kind"] == kind]
        folder = self._folder / name
        folder.mkdir()
        words, environment = self._prepared(owner, Pod(name, ""), folder)
        return subprocess.run(
            words,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=COMMAND_S_MAX,
        )

    def _prepared(self, owner: Object, pod: Pod, folder: Path) -> tuple[list[str], dict[str, str]]:
        template = pod_template(owner)["spec"]
        (container,) = template["containers"]
        found = command_of(container, pod, self._secrets)
        places = {it["name"]: folder / it["name"] for it in container["volumeMounts"]}
        self._fill(template["volumes"], places)
        replaced = {it["mountPath"]: str(places[it["name"]]) for it in container["volumeMounts"]}
        replaced |= {"0.0.0.0": pod.address, **self._addresses}
        return _here(found, replaced)

    def _fill(self, volumes: list[dict[str, Any]], places: dict[str, Path]) -> None:
        for place in places.values():
            place.mkdir(exist_ok=True)
        for volume in volumes:
            place = places[volume["name"]]
            for item in volume.get("secret", {}).get("items", []):
                value = self._secrets[volume["secret"]["secretName"], item["key"]]
                (place / item["path"]).write_text(value)
            if "configMap" in volume:
                data = self.rendered.find("ConfigMap", volume["configMap"]["name"])["data"]
                for name, text in data.items():
                    (place / name).write_text(text)


def _here(found: Command, replaced: dict[str, str]) -> tuple[list[str], dict[str, str]]:
    """On this machine, with this Python, which has to find the packages."""

    # The longest first, as a pod's name has its Service's in it; and what was put in is left alone.
    names = sorted(replaced, key=len, reverse=True)
    pattern = re.compile("|".join(_whole(it) for it in names))

    def place(text: str) -> str:
        return pattern.sub(lambda it: replaced[it[0]], text)

    words = [sys.executable, *(place(it) for it in found.words[1:] if it != "-I")]
    environment = {name: place(value) for name, value in found.environment.items()}
    paths = {"PATH": os.defpath, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return words, {**environment, **paths}


def _whole(name: str) -> str:
    """A folder where a path begins with it; any other name anywhere."""
    found = re.escape(name)
    return rf"(?<![\w.-]){found}(?=/|$)" if name.startswith("/") else found
