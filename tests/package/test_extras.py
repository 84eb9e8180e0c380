"""Errors say which packages an extra has: those of the package's own list."""

from __future__ import annotations

from pathlib import Path

import pytest

from pylogseg.errors import EXTRAS, install_text

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("extra", EXTRAS)
def test_the_packages_of_an_extra(extra: str) -> None:
    listed = ", ".join(f'"{package}"' for package in EXTRAS[extra])
    assert f"\n{extra} = [{listed}]\n" in (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert install_text(extra) == "pip install " + " ".join(f"'{package}'" for package in EXTRAS[extra])


def test_no_text_needs_an_index_that_has_this_package() -> None:
    for path in [*(ROOT / "src").rglob("*.py"), *(ROOT / "docs").glob("*.md")]:
        assert "'pylogseg[" not in path.read_text(encoding="utf-8"), path
