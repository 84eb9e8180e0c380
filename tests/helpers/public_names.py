"""The public surface of the package: the definitions whose docstrings say everything, in full numpydoc.

Public is what users name, and what that gives them:

- the names in `pylogseg.__all__`, and the definitions that docs/api.md shows;
- what the pages for users (`PAGES`) import or name with its module;
- the classes in the annotations of all these: of what functions and methods return, and of fields.

Everything else is internal: there a docstring is there for what the signature does not say. Only what docs/internals.md
shows may say it in sections too.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "pylogseg"
PAGES = ("python", "engine", "offline", "format")

Definition = ast.ClassDef | ast.FunctionDef


@functools.cache
def public() -> dict[str, Definition]:
    """Public functions, classes and their public methods, by name."""
    surface = _Surface()
    named = {surface.home(name): None for name in _package_names() + _page_names()} | _shown(surface, "api")
    names: dict[str, list[str] | None] = {name: members for name, members in named.items() if name}
    returned = {found for name, members in names.items() for found in surface.annotated(name, members)}
    names |= dict.fromkeys(returned - set(names))
    return {path: node for name, members in names.items() for path, node in surface.parts(name, members)}


def described() -> set[str]:
    """Names whose docstrings may have sections: the public ones, and what docs/internals.md shows."""
    surface = _Surface()
    shown = _shown(surface, "internals").items()
    return {*public(), *(path for name, members in shown if name for path, _ in surface.parts(name, members))}


def shown_names() -> dict[str, list[tuple[str, str]]]:
    """Of docs/api.md, by the module that a heading names: each definition, and where it is."""
    module, found = "pylogseg", dict[str, list[tuple[str, str]]]()
    for line in (ROOT / "docs" / "api.md").read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            (module,) = re.findall(r"`([\w.]+)`", line) or ["pylogseg"]
        elif line.startswith("::: "):
            home, _, name = line.removeprefix("::: ").rpartition(".")
            found.setdefault(module, []).append((home, name))
    return found


def definitions() -> Iterator[tuple[str, Definition]]:
    """Every function and class of the package, those inside of others too."""
    for path in SOURCE.rglob("*.py"):
        yield from _inside(_parsed(path), _module_of(path))


def is_protocol(node: ast.ClassDef) -> bool:
    """Whether a class only names methods; what they do, its own docstring says."""
    return any(isinstance(base, ast.Name) and base.id == "Protocol" for base in node.bases)


@functools.cache
def _parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


class _Surface:
    """Definitions at the top of modules, and where imported names come from."""

    def __init__(self) -> None:
        self.definitions: dict[str, Definition] = {}
        self._imports: dict[str, str] = {}
        for path in (*SOURCE.rglob("*.py"), *SOURCE.rglob("__init__.pyi")):
            module = _module_of(path)
            tree = _parsed(path)
            for node in tree.body:
                if isinstance(node, Definition):
                    self.definitions[f"{module}.{node.name}"] = node
            for node in ast.walk(tree):
                if isinstance(node, ast.ImportFrom):
                    for each in node.names:
                        here = f"{module}.{each.asname or each.name}"
                        if here != f"{node.module}.{each.name}":  # a package that imports a module of its own
                            self._imports[here] = f"{node.module}.{each.name}"

    def home(self, name: str) -> str | None:
        """The definition that a name leads to; None if it is none of this package."""
        while name not in self.definitions and name in self._imports:
            name = self._imports[name]
        return name if name in self.definitions else None

    def members(self, name: str, chosen: list[str] | None) -> list[ast.FunctionDef]:
        node = self.definitions[name]
        if isinstance(node, ast.FunctionDef) or is_protocol(node):
            return []
        methods = (each for each in node.body if isinstance(each, ast.FunctionDef))
        return [each for each in methods if (each.name in chosen if chosen else not each.name.startswith("_"))]

    def annotated(self, name: str, chosen: list[str] | None) -> Iterator[str]:
        """Classes that a definition returns, or has in its fields."""
        node = self.definitions[name]
        if isinstance(node, ast.FunctionDef):
            annotations = [node.returns]
        else:
            annotations = [each.returns for each in self.members(name, chosen)]
            annotations += [each.annotation for each in node.body if isinstance(each, ast.AnnAssign)]
        for annotation in filter(None, annotations):
            for part in ast.walk(annotation):
                if isinstance(part, ast.Name):
                    home = self.home(f"{name.rpartition('.')[0]}.{part.id}")
                    if home and isinstance(self.definitions[home], ast.ClassDef) and not part.id.startswith("_"):
                        yield home

    def parts(self, name: str, chosen: list[str] | None) -> Iterator[tuple[str, Definition]]:
        yield name, self.definitions[name]
        for each in self.members(name, chosen):
            yield f"{name}.{each.name}", each


def _module_of(path: Path) -> str:
    return ".".join(("pylogseg", *path.relative_to(SOURCE).with_suffix("").parts)).removesuffix(".__init__")


def _inside(node: ast.AST, name: str) -> Iterator[tuple[str, Definition]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Definition):
            yield f"{name}.{child.name}", child
            yield from _inside(child, f"{name}.{child.name}")
        else:
            yield from _inside(child, name)


def offered(package: Path) -> dict[str, str]:
    """The names that the stub of a package imports, and the module of each."""
    body = ast.parse((package / "__init__.pyi").read_text(encoding="utf-8")).body
    imports = [node for node in body if isinstance(node, ast.ImportFrom)]
    return {each.asname or each.name: node.module or "" for node in imports for each in node.names}


def _package_names() -> list[str]:
    return [f"{module}.{name}" for name, module in offered(SOURCE).items() if module != "pylogseg"]


def _page_names() -> list[str]:
    """Names that pages import, or name with their modules."""
    names = []
    for page in PAGES:
        text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
        for module, imported in re.findall(r"from (pylogseg[\w.]*) import ([\w, ]+)", text):
            names += [f"{module}.{each.strip()}" for each in imported.split(",")]
        names += re.findall(r"`(pylogseg\.[\w.]+)", text)
    return names


def _shown(surface: _Surface, page: str) -> dict[str | None, list[str] | None]:
    """What a page shows, and of classes the members that it lists."""
    found: dict[str | None, list[str] | None] = {}
    text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    for name, options in re.findall(r"^::: ([\w.]+)\n((?: {4}.*\n)*)", text, re.MULTILINE):
        listed = re.search(r"members: \[(.*)\]", options)
        members = [each.strip() for each in listed[1].split(",")] if listed else None
        home = surface.home(name)
        if home:
            found[home] = members
        else:
            all_here = [each for each in surface.definitions if each.rpartition(".")[0] == name]
            inside = [f"{name}.{each}" for each in members] if members else all_here
            found |= dict.fromkeys(surface.home(each) for each in inside if not each.rpartition(".")[2].startswith("_"))
    return found
