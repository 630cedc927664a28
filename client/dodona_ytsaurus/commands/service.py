"""Hold what all commands at one gateway share.

Owns: what is remembered between two requests: answers by mutation id, and the owners of master
transactions.
"""

from dodona_ytsaurus.commands.master_transactions import MasterTransactions
from dodona_ytsaurus.commands.mutations import Mutations
from dodona_ytsaurus.gateway import Gateway


class Service:
    """The API at one gateway, from the start of the gateway's own service to its end."""

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway
        self.mutations = Mutations()
        self.master_transactions = MasterTransactions(gateway.number)
