"""`remit`, and `python -m remit`."""

import sys

from remit.bootstrap.host import WorkspaceHost
from remit.surfaces.cli.main import main as run


def main() -> None:
    """Run the command line and leave with its exit code."""
    sys.exit(run(sys.argv[1:], WorkspaceHost))


if __name__ == "__main__":
    main()
