"""The console's shell: asking servers, pages, the login."""
