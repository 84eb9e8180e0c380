"""Facts of a report of very many partitions, made from those of a few."""

from __future__ import annotations

import random
from typing import Any


def many(facts: dict[str, Any], partitions: int, segments: int) -> dict[str, Any]:
    """Return facts with so many partitions of so many segments, whose numbers have nothing in common."""
    dice = random.Random(partitions)

    def varied(value: Any) -> Any:
        if isinstance(value, int) and value > 99:
            return value + dice.randrange(value)
        if isinstance(value, dict):
            return {name: varied(item) for name, item in value.items()}
        return [varied(item) for item in value] if isinstance(value, list) else value

    kept = [each for each in facts["partitions"] if each["records"] and each["sample"]]
    made, topics = [], []
    for number in range(partitions):
        one = varied(kept[number % len(kept)])
        one["segments"] = [varied(one["segments"][at % len(one["segments"])]) for at in range(segments)]
        one |= {
            "name": f"topic-{number // 10}-{number % 10}",
            "topic": f"topic-{number // 10}",
            "partition": number % 10,
        }
        made.append(one)
        if number % 10 == 0:
            topics.append({**varied(facts["topics"][number % len(facts["topics"])]), "name": one["topic"]})
    return {**facts, "partitions": made, "topics": topics}
