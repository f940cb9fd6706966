"""``python -m mutcache_tools``: the ``mutcache`` command."""

import sys

from mutcache_tools.cli import main

if __name__ == "__main__":
    sys.exit(main())
