"""Benchmarks that asv runs over commits; `../table.py` compares with others on one commit.

    asv run --config asv_benchmarks/asv.conf.json                            a commit, in an environment of its own
    asv run --config asv_benchmarks/asv.conf.json --python=same --quick      what is installed

The data is made by our own encoder, in a folder that is removed at the end.
"""

import sys
from pathlib import Path

# `data` is shared with the table, which is no package.
sys.path.append(str(Path(__file__).resolve().parent.parent))
