"""One member of etcd: a connection, and the calls that a coordinator needs.

Owns: gRPC. Each call has a deadline. Of etcd's calls there are Range, Txn and Watch, and a login
if there is a user. `aetcd` brings etcd's messages. Its client is not used: it has no TLS, one
endpoint, and a watch that hides why it ended.

Invariant: an error says whether etcd may have done what it was asked. gRPC repeats no call here.
"""

import asyncio
from collections.abc import Awaitable
from pathlib import Path
from typing import Any, Final

import grpc
from aetcd import rpc

from dodona_replication.shell.etcd_options import Endpoint, EtcdOptions
from dodona_server.process import read_clock
from dodona_wire.errors import Forbidden, InvalidRequest, Unauthenticated

MS_PER_S: Final = 1_000
CHANNEL: Final = (
    ("grpc.enable_retries", 0),  # a repeated compare hides the outcome of the first
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),  # a member that failed is connected anew
    ("grpc.keepalive_time_ms", 10_000),  # etcd closes connections that ask more than each 5 s
    ("grpc.keepalive_timeout_ms", 5_000),
)
LEADER: Final = ("hasleader", "true")
"""A member without a leader refuses the call before it does anything, and ends its watches."""
NO_LEADER: Final = "etcdserver: no leader"
NO_USER: Final = ("etcdserver: user name is empty", "etcdserver: invalid auth token")
"""What etcd says to a call without a user, if it has users."""
USERS_OFF: Final = "etcdserver: authentication is not enabled"
OF_ETCD: Final = "etcdserver: "
"""Begins the text of an error that is etcd's own, and not gRPC's."""
_REFUSALS: Final = (
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.UNAUTHENTICATED,
)
"""etcd gives these codes to requests that it did not carry out."""


class CallFailed(Exception):
    """A call has no answer. `may_be_done`: whether etcd may have done it, or may do it later."""

    def __init__(self, endpoint: Endpoint, reason: str, *, may_be_done: bool) -> None:
        super().__init__(f"{endpoint}: {reason}")
        self.may_be_done = may_be_done


class EtcdMember:
    """A connection to one member. It is made at the first call, and after a failure anew."""

    def __init__(self, endpoint: Endpoint, options: EtcdOptions) -> None:
        self.endpoint = endpoint
        self._options = options
        self._channel: Any = None
        self._token = ""
        self.heard_us = 0
        """The instant of the last answer to a call, or of a watch."""
        self._connecting: asyncio.Task[Any] | None = None
        """All calls that need a connection wait for the same attempt."""

    async def range(self, request: Any, wait_s: float) -> Any:
        """Return the answer to a Range. Raises CallFailed, Unauthenticated, Forbidden,
        InvalidRequest."""
        stub = rpc.KVStub(await self._connected())
        call = stub.Range(request, timeout=wait_s, metadata=self._metadata())
        return self.hear(await self.guarded(call))

    async def txn(self, request: Any, wait_s: float) -> Any:
        """Return the answer to a Txn. Raises as `range` does."""
        stub = rpc.KVStub(await self._connected())
        call = stub.Txn(request, timeout=wait_s, metadata=self._metadata())
        return self.hear(await self.guarded(call))

    async def watch(self) -> Any:
        """Return an open stream of Watch, without a deadline. Raises as `range` does."""
        stub = rpc.WatchStub(await self._connected())
        return stub.Watch(metadata=self._metadata())

    def hear(self, answer: Any) -> Any:
        """Note that etcd has answered, and return its answer."""
        self.heard_us = read_clock().instant_us
        return answer

    async def guarded(self, waiting: Awaitable[Any]) -> Any:
        """Wait for gRPC, and raise our errors for its own. Raises as `range` does."""
        try:
            return await waiting
        except grpc.RpcError as error:
            raise self._fault_of(error) from error
        except (asyncio.InvalidStateError, grpc.aio.UsageError) as error:
            raise CallFailed(self.endpoint, str(error), may_be_done=True) from error
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            raise CallFailed(self.endpoint, "the connection closed", may_be_done=True) from None

    async def close(self) -> None:
        """Close the connection. Calls that wait fail. A repeat is harmless."""
        connecting, channel = self._connecting, self._channel
        self._connecting, self._channel, self._token = None, None, ""
        if connecting is not None:
            connecting.cancel()
        if channel is not None:
            await channel.close()

    def _fault_of(self, error: grpc.RpcError) -> CallFailed | Forbidden | Unauthenticated:
        code, text = error.code(), error.details() or ""
        reason = f"{code.name}: {text}"
        if not text.startswith(OF_ETCD):
            return CallFailed(self.endpoint, reason, may_be_done=True)
        if code is grpc.StatusCode.PERMISSION_DENIED:
            return self._forbidden(text)
        if text in NO_USER and not self._options.user:
            return self._unknown(text)
        if code is grpc.StatusCode.UNAUTHENTICATED:
            self._token = ""  # it expired, or etcd was started anew: the next call logs in
        is_refused = code in _REFUSALS or text == NO_LEADER
        return CallFailed(self.endpoint, reason, may_be_done=not is_refused)

    def _metadata(self) -> tuple[tuple[str, str], ...]:
        return (LEADER, ("token", self._token)) if self._token else (LEADER,)

    async def _connected(self) -> Any:
        """Return a channel with a connection and, if there is a user, a token. Nothing was sent
        before that. Raises as `range` does."""
        if self._is_ready():
            return self._channel
        if self._connecting is None:
            self._connecting = asyncio.create_task(self._connect())
            self._connecting.add_done_callback(self._end_of_connecting)
        connecting = self._connecting
        await asyncio.wait({connecting})
        if connecting.cancelled():
            raise CallFailed(self.endpoint, "the connection closed", may_be_done=False)
        return connecting.result()

    def _is_ready(self) -> bool:
        if self._channel is None or (self._options.user and not self._token):
            return False
        state = self._channel.get_state()
        return state is grpc.ChannelConnectivity.READY

    def _end_of_connecting(self, task: "asyncio.Task[Any]") -> None:
        if self._connecting is task:
            self._connecting = None
        if not task.cancelled():
            task.exception()  # perhaps nothing waits for it any more

    async def _connect(self) -> Any:
        if self._channel is None:
            self._channel = self._open()
        channel = self._channel
        try:
            await asyncio.wait_for(_ready(channel), self._options.connect_ms_max / MS_PER_S)
        except (ConnectionError, TimeoutError) as error:
            await channel.close()
            if self._channel is channel:
                self._channel = None
            reason = str(error) or f"no connection in {self._options.connect_ms_max} ms"
            raise CallFailed(self.endpoint, reason, may_be_done=False) from error
        if self._options.user and not self._token:
            self._token = await self._login(channel)
        return channel

    async def _login(self, channel: Any) -> str:
        request = rpc.AuthenticateRequest(name=self._options.user, password=self._options.password)
        wait_s = self._options.connect_ms_max / MS_PER_S
        try:
            answer = await rpc.AuthStub(channel).Authenticate(request, timeout=wait_s)
        except grpc.RpcError as error:
            text = error.details() or ""
            if error.code() is grpc.StatusCode.INVALID_ARGUMENT:
                raise Unauthenticated(
                    f"etcd at {self.endpoint} refused the user {self._options.user}: {text}; check "
                    "the user and the password"
                ) from None  # the error of gRPC may show the request
            if text == USERS_OFF:
                raise InvalidRequest(
                    f"etcd at {self.endpoint} has no users, and this process has the user "
                    f"{self._options.user} for it: enable users there, or leave the user out"
                ) from None
            raise CallFailed(self.endpoint, f"login: {text}", may_be_done=False) from None
        return str(answer.token)

    def _open(self) -> Any:
        if not self.endpoint.is_encrypted:
            return grpc.aio.insecure_channel(self.endpoint.target, options=CHANNEL)
        credentials = grpc.ssl_channel_credentials(
            root_certificates=_contents(self._options.ca_file),
            private_key=_contents(self._options.key_file),
            certificate_chain=_contents(self._options.certificate_file),
        )
        return grpc.aio.secure_channel(self.endpoint.target, credentials, options=CHANNEL)

    def _forbidden(self, text: str) -> Forbidden:
        user = f"user {self._options.user}" if self._options.user else "user of its certificate"
        cluster, prefix = self._options.cluster, f"/dodona/{self._options.cluster}/"
        return Forbidden(
            f"etcd at {self.endpoint} refused the call ({text}): the {user} needs a role that may "
            f"read and write all keys of cluster {cluster}. Grant it: etcdctl role "
            f"grant-permission ROLE --prefix=true readwrite {prefix}",
            user=self._options.user,
            prefix=prefix,
        )

    def _unknown(self, text: str) -> Unauthenticated:
        prefix = f"/dodona/{self._options.cluster}/"
        return Unauthenticated(
            f"etcd at {self.endpoint} has users ({text}), and this process has none. Set "
            "--etcd-user and --etcd-password-file, with a user whose role may read and write all "
            f"keys that begin with {prefix}",
            prefix=prefix,
        )


async def _ready(channel: Any) -> None:
    """Wait for a connection. Raises OSError if the first attempt fails."""
    while (state := channel.get_state(try_to_connect=True)) is not grpc.ChannelConnectivity.READY:
        if state in (
            grpc.ChannelConnectivity.TRANSIENT_FAILURE,
            grpc.ChannelConnectivity.SHUTDOWN,
        ):
            raise ConnectionError("no connection: is it running, and is TLS right?")
        await channel.wait_for_state_change(state)


def _contents(path: Path | None) -> bytes | None:
    if path is None:
        return None
    try:
        return path.read_bytes()
    except OSError as error:
        text = f"the file {path} for TLS with etcd can't be read: {error.strerror}"
        raise InvalidRequest(text) from error
