"""Programs that take too long for the tests, or need more than they do: `python tests/soak --list`."""

from __future__ import annotations

import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
ROOT = TESTS.parent
EXAMPLES = ROOT / "examples" / "data"
#: Starts and stops a Kafka broker.
BROKER = TESTS / "kafka" / "broker" / "broker.sh"


def itself(file: str) -> list[str]:
    """Return the command that runs a program of this folder in another process, from its `__file__`."""
    return [sys.executable, str(TESTS / "soak"), Path(file).stem]
