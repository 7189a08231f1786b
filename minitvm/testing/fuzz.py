"""Random testing at length.

    python -m minitvm.testing.fuzz te --cases 10000 --seed 0
    python -m minitvm.testing.fuzz relay --cases 5000 --seed 0
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence

from minitvm.testing import fuzz_relay, fuzz_te

COMMANDS: Mapping[str, Callable[[Sequence[str] | None], int]] = {
    "relay": fuzz_relay.main,
    "te": fuzz_te.main,
}


def main(arguments: Sequence[str]) -> int:
    """Runs the command that is named first on the rest; gives the exit status."""
    command = COMMANDS.get(arguments[0]) if arguments else None
    if command is None:
        print(f"usage: python -m minitvm.testing.fuzz {{{','.join(COMMANDS)}}} "
              f"[--cases N] [--seed N]", file=sys.stderr)
        return 2
    return command(arguments[1:])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
