"""Define the operations of the REST API, in a module for each topic, and the table of all of
them."""
