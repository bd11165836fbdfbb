"""What the checks of this folder share: they list breaches of a rule below a root folder."""

import sys
from pathlib import Path


def main(check):
    """Runs check(root), prints each breach on a line and returns the exit status: 1 when there are any."""
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent
    try:
        breaches = check(root)
    except (OSError, ValueError) as error:
        breaches = [str(error)]
    print("\n".join(breaches), end="\n" if breaches else "")
    return 1 if breaches else 0
