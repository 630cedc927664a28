"""`python -m documents`: write the parts of pages that are made of the code. A test fails where
they are not the code's."""

from documents.generated import write_all

if __name__ == "__main__":
    print("\n".join(write_all()) or "nothing has changed")
