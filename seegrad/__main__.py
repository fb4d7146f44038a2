"""`python -m seegrad` is the `seegrad` command."""

from seegrad.cli import main

if __name__ == "__main__":
    main()
