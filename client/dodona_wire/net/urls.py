"""Show URLs in messages and logs. Imports nothing."""


def hide_password(url: str) -> str:
    """Return a URL, or a path, without the part between :// and an @."""
    scheme, separator, rest = url.rpartition("://")
    return f"{scheme}{separator}{rest.rpartition('@')[2]}" if separator else url
