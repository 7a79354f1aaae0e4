"""`python -m detent` is the same program as `detent`."""

from detent.cli.main import main

if __name__ == "__main__":
    main()
