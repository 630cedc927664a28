"""Run the gateway's parts that do IO: the web application, its edge, and the client of the
cluster."""
