"""Create tables of named leases, and acquire, renew and release named leases over REST.

Owns: these operations, each a few lines over the client, and the roles that they need.
"""

from typing import Final

from dodona._core.writing.lease import Lease
from dodona_gateway.core import answers, requests
from dodona_gateway.shell.routes import Call, route


async def create_lease_table(call: Call, asked: requests.CreateLeaseTable) -> answers.Done:
    """Create a table for named leases, and mount it."""
    call.principal.check("admin", asked.table)
    create = call.service.client.leases.create_table
    await create(asked.table, timeout_ms=asked.timeout_ms)
    return answers.Done()


async def acquire_lease(call: Call, asked: requests.AcquireLease) -> answers.AcquiredLease:
    """Acquire a named lease. Its epoch is one more than before."""
    call.principal.check("write", asked.table)
    acquire = call.service.client.leases.acquire
    lease = await acquire(
        asked.table, asked.name, asked.owner, asked.lease_ms, timeout_ms=asked.timeout_ms
    )
    return answers.AcquiredLease(lease.table, lease.name, lease.owner, lease.epoch)


async def renew_lease(call: Call, asked: requests.RenewLease) -> answers.Done:
    """Renew a named lease."""
    call.principal.check("write", asked.table)
    lease = Lease(asked.table, asked.name, asked.owner, asked.epoch)
    renew = call.service.client.leases.renew
    await renew(lease, asked.lease_ms, timeout_ms=asked.timeout_ms)
    return answers.Done()


async def release_lease(call: Call, asked: requests.ReleaseLease) -> answers.Done:
    """Release a named lease."""
    call.principal.check("write", asked.table)
    lease = Lease(asked.table, asked.name, asked.owner, asked.epoch)
    await call.service.client.leases.release(lease, timeout_ms=asked.timeout_ms)
    return answers.Done()


ROUTES: Final = (
    route("POST", "/v1/leases/create_table", create_lease_table, "admin"),
    route("POST", "/v1/leases/acquire", acquire_lease, "write"),
    route("POST", "/v1/leases/renew", renew_lease, "write"),
    route("POST", "/v1/leases/release", release_lease, "write"),
)
