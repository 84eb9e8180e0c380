"""Names that a package offers and loads on first use: an import must not cost more than the names that are used."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any


def load_lazily(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return `__getattr__`, `__dir__` and `__all__` of a package whose stub says where its names come from.

    The stub, `__init__.pyi`, is the only list, also for type checkers: lines ``from MODULE import NAME as NAME``. If
    MODULE is the package itself, NAME is a module of it; programs import modules, so `__all__` leaves them out.
    """
    homes: dict[str, str] = {}
    with open(os.path.join(sys.modules[package].__path__[0], "__init__.pyi"), encoding="utf-8") as stub:
        for line in stub:
            if line.startswith("from "):
                _, home, _, name, *_ = line.split()
                homes[name] = home

    def get(name: str) -> Any:
        home = homes.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        from importlib import import_module

        return import_module(f"{package}.{name}") if home == package else getattr(import_module(home), name)

    def names() -> list[str]:
        return sorted([*homes, *(name for name in vars(sys.modules[package]) if name.startswith("__"))])

    return get, names, sorted(name for name, home in homes.items() if home != package)
