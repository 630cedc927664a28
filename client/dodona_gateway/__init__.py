"""Run the gateway: REST for any language, and YTsaurus's HTTP API, on top of the client library."""
