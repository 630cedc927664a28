"""`python -m twins`: write the blocking modules of the client anew. A test fails where they are not
what the asyncio modules make."""

from twins.files import write_all

if __name__ == "__main__":
    print("\n".join(write_all()) or "nothing has changed")
