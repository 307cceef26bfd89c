"""`python -m opsgen.child`: the process that a supervisor starts."""

import sys

from opsgen.child.loop import main

if __name__ == "__main__":
    main(sys.argv[1:])
