"""Tests of offline/running.py. A few random walks through operations and offline commands; `soak offline-walks` is the
soak.
"""

import tempfile
from pathlib import Path

from soak import offline_walks


def test_what_the_commands_promise() -> None:
    # No power fails here, so the many syncs may as well be cheap ones.
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        counts = offline_walks.run(282_682, 0, 3, Path(folder))
    assert counts["walks"] == 3
