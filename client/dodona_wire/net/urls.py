"""URLs as messages and logs show them. Imports nothing."""


def hide_password(url: str) -> str:
    """A URL, or a path, without whatever stands between :// and an @."""
    scheme, separator, rest = url.rpartition("://")
    return f"{scheme}{separator}{rest.rpartition('@')[2]}" if separator else url
