"""Programs that take too long for the tests, or need more than they do.

    python tests/soak --list
    python tests/soak NAME [--seed N] [--minutes M] [OPTIONS]

NAME is that of a file beside this one, `-` for `_`. What a program needs, and its other options, are in its `--help`.
A run with the same seed makes the same inputs. The exit code is 0 if all is well.
"""

from __future__ import annotations

import ast
import re
import runpy
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:1] = [str(HERE.parent), str(HERE.parent / "kafka"), str(HERE.parent / "kafka" / "broker")]


def programs() -> dict[str, Path]:
    """Return the programs by their names."""
    return {path.stem.replace("_", "-"): path for path in sorted(HERE.glob("[a-z]*.py"))}


def listed(name: str, path: Path) -> tuple[str, str, str]:
    """Return name, options of seeds and times, and what a program does."""
    source = path.read_text(encoding="utf-8")
    options = re.findall(r'add_argument\(\s*"(--(?:seed|minutes|seconds|only))"', source)
    if "seeded_runs import main" in source:
        options += ["--seed", "--minutes", "--only"]
    what = (ast.get_docstring(ast.parse(source)) or "").partition("\n")[0].partition(": `")[0].rstrip(".:")
    return name, " ".join(options), what


def main(words: list[str]) -> int:
    """Run a program with the words behind its name."""
    found = programs()
    if not words or words[0] in ("-h", "--help", "--list"):
        if words != ["--list"]:
            print(__doc__)
        rows = [("NAME", "SEEDS AND TIMES", "WHAT"), *(listed(*each) for each in found.items())]
        widths = [max(len(row[i]) for row in rows) for i in range(2)]
        for row in rows:
            print(f"{row[0]:{widths[0]}}  {row[1]:{widths[1]}}  {row[2]}")
        return 0 if words else 2
    name = words[0].replace("_", "-")
    if name not in found:
        print(f"python tests/soak {words[0]}: no such program; --list has them", file=sys.stderr)
        return 2
    sys.argv = [f"python tests/soak {name}", *words[1:]]
    runpy.run_module(f"soak.{found[name].stem}", run_name="__main__", alter_sys=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
