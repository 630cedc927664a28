"""The gateway: REST for any language, and YTsaurus's HTTP API, over the client library."""
