"""`python -m opsgen` is `opsgen`."""

from opsgen.cli import main

if __name__ == "__main__":
    main()
