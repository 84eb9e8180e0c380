"""The wanted rows and columns of a table: Arrow's expressions, which Arrow checks and applies."""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import acero

from pylogseg.errors import RequestError

ColumnChoice = Sequence[str] | Mapping[str, Any] | None


def check_filter(filter: Any, schema: pa.Schema) -> None:
    """Raise RequestError for anything but a boolean expression on the columns of a schema."""
    if not isinstance(filter, pc.Expression):
        raise RequestError(f"a filter is an expression like pyarrow.compute.field('offset') >= 5, not {filter!r}")
    try:
        filter_table(schema.empty_table(), filter)
    except (pa.ArrowException, TypeError) as error:
        raise explain_error(error, f"the filter {filter}", schema) from None


def filter_table(table: pa.Table, filter: Any) -> pa.Table:
    """Return the rows for which a filter is true; this thread does the work."""
    source = acero.Declaration("table_source", acero.TableSourceNodeOptions(table))
    steps = [source, acero.Declaration("filter", acero.FilterNodeOptions(filter))]
    return acero.Declaration.from_sequence(steps).to_table(use_threads=False)


def explain_error(error: Exception, what: str, schema: pa.Schema) -> RequestError:
    """Return the error for an expression that Arrow refuses."""
    reason = str(error).splitlines()[0]
    missing = re.search(r"No match for FieldRef\.Name\((.*?)\) in ", reason)
    return RequestError(f"{what}: {reason}") if missing is None else no_column(missing[1], schema.names)


def no_column(name: str, names: Sequence[str]) -> RequestError:
    close = difflib.get_close_matches(name, names, 1)
    meant = f"; did you mean {close[0]!r}?" if close else "."
    return RequestError(f"no column {name!r}{meant} The columns are {', '.join(names)}")


def fields_of(expressions: Iterable[Any], names: Sequence[str]) -> list[str]:
    """Return the columns that expressions may use, in order: the text of the expressions has their names."""
    text = " ".join(map(str, expressions))
    # A field that is asked for by its number: only with all columns is it the one that is meant.
    return [name for name in names if name in text] if "FieldPath(" not in text else list(names)


class Projection:
    """The wanted rows and columns of a table; RequestError for an unknown column, and for a value that is no filter."""

    def __init__(self, schema: pa.Schema, columns: ColumnChoice = None, filter: Any = None) -> None:
        if filter is not None:
            check_filter(filter, schema)
        expressions: dict[str, Any] | None = dict(columns) if isinstance(columns, Mapping) else None
        names = schema.names if columns is None else list(columns)
        used = [filter] if filter is not None else []
        if expressions is None:
            missing = [name for name in names if name not in schema.names]
            if missing:
                raise no_column(str(missing[0]), schema.names)
            self.needed = [name for name in schema.names if name in names or name in fields_of(used, schema.names)]
        else:
            self.needed = fields_of([*used, *expressions.values()], schema.names)
        self._all, self._names, self._made, self.filter = schema, names, expressions, filter
        self._is_all = names == self.needed
        empty = pa.schema([schema.field(name) for name in self.needed]).empty_table()
        try:
            self.schema: pa.Schema = self._project_table(empty).schema
        except (pa.ArrowException, TypeError) as error:
            raise explain_error(error, f"columns {columns!r}", schema) from None

    @functools.cached_property
    def unfiltered(self) -> Projection:
        """Return the projection to the same columns of all rows."""
        return Projection(self._all, self._names if self._made is None else self._made)

    def __call__(self, batch: pa.RecordBatch) -> list[pa.RecordBatch]:
        """Return the wanted rows and columns of a batch with the needed columns."""
        if self.filter is None and self._made is None:
            return [batch if self._is_all else batch.select(self._names)]
        table = pa.Table.from_batches([batch])
        if self.filter is not None:
            table = filter_table(table, self.filter)
        parts: list[pa.RecordBatch] = self._project_table(table).to_batches()
        return [part for part in parts if part.num_rows]

    def _project_table(self, table: pa.Table) -> pa.Table:
        if self._made is None:
            return table.select(self._names)
        options = acero.ProjectNodeOptions(list(self._made.values()), list(self._made))
        steps = [acero.Declaration("table_source", acero.TableSourceNodeOptions(table))]
        steps.append(acero.Declaration("project", options))
        return acero.Declaration.from_sequence(steps).to_table(use_threads=False)
