"""Keywords that a TypedDict declares for several functions."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any, is_typeddict


def split_keywords(given: Mapping[str, Any], *kinds: Any) -> list[dict[str, Any]]:
    """Return the keywords of a call by the first TypedDict that declares them; TypeError for one that none does."""
    parts: list[dict[str, Any]] = [{} for _ in kinds]
    for name, value in given.items():
        part = next((part for kind, part in zip(kinds, parts, strict=True) if name in kind.__annotations__), None)
        if part is None:
            names = dict.fromkeys(name for kind in kinds for name in kind.__annotations__)
            raise TypeError(f"unexpected keyword argument {name!r}; expected one of {', '.join(names)}")
        part[name] = value
    return parts


def parameters_of(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """Return the parameters of a function; ``**options: Unpack[...]`` stands for the keys of its TypedDict."""
    if is_typeddict(function):
        names, by_name = function.__annotations__.items(), inspect.Parameter.KEYWORD_ONLY
        return [inspect.Parameter(name, by_name, default=None, annotation=annotation) for name, annotation in names]
    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(function).parameters.values():
        kind = re.fullmatch(r"Unpack\[(\w+)\]", str(parameter.annotation))
        parameters += [parameter] if kind is None else parameters_of(inspect.unwrap(function).__globals__[kind[1]])
    return parameters
