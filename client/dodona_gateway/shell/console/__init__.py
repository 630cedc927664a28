"""Run the console: requests to servers, pages, and the login."""
