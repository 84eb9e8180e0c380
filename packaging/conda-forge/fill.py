"""The recipe for one sdist: `python packaging/conda-forge/fill.py dist/pylogseg-X.Y.Z.tar.gz [--local] > recipe.yaml`.

The address is where the package index keeps the sdist of a release; with --local it is the file itself, for a build
before that.
"""

from __future__ import annotations

import hashlib
import re
import sys
from pathlib import Path

RECIPE = Path(__file__).with_name("recipe.yaml")


def filled(sdist: Path, local: bool) -> str:
    """Return the recipe with version, address and checksum of an sdist."""
    version = sdist.name.removeprefix("pylogseg-").removesuffix(".tar.gz")
    address = sdist.resolve().as_uri() if local else f"https://pypi.org/packages/source/p/pylogseg/{sdist.name}"
    facts = {"version": version, "source": address, "sha256": hashlib.sha256(sdist.read_bytes()).hexdigest()}
    text = RECIPE.read_text(encoding="utf-8")
    for name, value in facts.items():
        text, found = re.subn(rf"^  {name}: .*$", f'  {name}: "{value}"', text, count=1, flags=re.MULTILINE)
        assert found, f"{RECIPE} has no {name} in its context"
    return text


if __name__ == "__main__":
    print(filled(Path(sys.argv[1]), "--local" in sys.argv[2:]), end="")
