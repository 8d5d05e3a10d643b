"""`python -m massgend` runs the daemon in the foreground."""

import sys

from massgend.daemon import main

if __name__ == "__main__":  # a worker process of anyio's imports this file, too
    sys.exit(main())
