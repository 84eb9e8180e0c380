"""The parts that the tables of a cluster's state had to skip."""

from __future__ import annotations

from pylogseg.values.internal.message_arrays import TypedRecords


class Notes(list[str]):
    """The skipped parts, each once; `damage` has the notes about damage and about files that could not be read.

    `has_left_out` if a newer Kafka wrote some of it.
    """

    has_left_out = False

    def __init__(self) -> None:
        super().__init__()
        self.damage: list[str] = []

    @property
    def has_damage(self) -> bool:
        return bool(self.damage)

    def add_left_out(self, *texts: str) -> None:
        """Note records of unknown types or versions."""
        self.has_left_out = self.has_left_out or bool(texts)
        self += [text for text in texts if text not in self]

    def add_damage(self, *texts: str) -> None:
        self.damage += [text for text in texts if text not in self.damage]
        self += [text for text in texts if text not in self]

    def add_typed(self, log: str, typed: TypedRecords) -> None:
        """Note the records of a log that have no typed row, with the reasons and counts."""
        self.add_left_out(
            *(f"{log}: {what}, were left out ({count})" for what, count in sorted(typed.left_out.items()))
        )
        for what, (count, path, first) in sorted(typed.damage.items()):
            self.add_damage(f"{path}: {what} ({count}, the first at offset {first})")
