"""Run the command line with `python -m dodona_local.cli`."""

from dodona_local.cli.application import main

if __name__ == "__main__":
    main()
