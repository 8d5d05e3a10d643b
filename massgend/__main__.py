"""`python -m massgend` runs the daemon in the foreground."""

import sys

from massgend.daemon import main

sys.exit(main())
