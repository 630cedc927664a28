"""The operations of the REST API, a module for each topic, and the table of all of them."""
