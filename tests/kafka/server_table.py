#!/usr/bin/env python3
"""Make `src/pylogseg/format/kafka.json`: the settings and errors of the Kafka as which the server speaks.

    server_table.py [--compare]

Of each setting: type, default, whether it can be changed while a broker runs, and what is allowed; which setting of a
broker is the default of which one of a topic; the numbers of all errors. They come from the classes of Kafka 4.3.0
(`kafka.sh described`), whatever KAFKA_VERSION is. With --compare nothing is written: exit code 0 if the file is what
they say.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
TABLE = HERE.parents[1] / "src" / "pylogseg" / "format" / "kafka.json"
VERSION = "4.3.0"
_NONE = "\0"


def described() -> str:
    """Return the text of the file."""
    command = [str(HERE / "kafka.sh"), "described"]
    env = {**os.environ, "KAFKA_VERSION": VERSION}
    lines = subprocess.run(command, check=True, stdout=subprocess.PIPE, encoding="utf-8", env=env).stdout.splitlines()
    found: dict[str, dict[str, Any]] = {}
    for kind, name, *rest in (line.split("\t") for line in lines):
        row: Any = rest[0]
        if kind == "ERROR":
            row = int(row)
        elif kind != "SYNONYM":
            row = [rest[0], None if rest[2] == _NONE else rest[2], bool(rest[1]), rest[3]]
        found.setdefault(kind, {})[name] = row
    parts = [f'"kafka": "{VERSION}"']
    for kind, rows in found.items():
        each = ",\n".join(f"{json.dumps(name)}: {json.dumps(row)}" for name, row in rows.items())
        parts.append(f'"{kind}": {{\n{each}\n}}')
    return "{" + ",\n".join(parts) + "}\n"


def main() -> None:
    """Write the file, or compare it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compare", action="store_true")
    text = described()
    if parser.parse_args().compare:
        sys.exit(text != TABLE.read_text(encoding="utf-8"))
    TABLE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
