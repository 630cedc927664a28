"""`python -m dodona_local.cli`: the console script by another name."""

from dodona_local.cli.application import main

if __name__ == "__main__":
    main()
