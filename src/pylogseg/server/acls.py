"""Rights of users: ACLs as Kafka's StandardAuthorizer reads them, without I/O."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

#: Types of resources.
ANY, TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID, LAST_KIND = 1, 2, 3, 4, 5, 7
CLUSTER_NAME = "kafka-cluster"
#: Operations.
ALL, READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS = range(2, 12)
IDEMPOTENT_WRITE, TWO_PHASE_COMMIT = 12, 15
LAST_OPERATION = TWO_PHASE_COMMIT
#: Patterns of names, and permissions.
MATCH, LITERAL, PREFIXED = 2, 3, 4
DENY, ALLOW = 2, 3
#: Fields of the record of an ACL, in the order of `Acl`.
FIELDS = ("resourceType", "resourceName", "patternType", "principal", "host", "operation", "permissionType")
_ANYTHING, _ANYBODY = "*", "User:*"
#: What an ACL that allows something allows as well.
_IMPLY = {DESCRIBE: {DESCRIBE, READ, WRITE, DELETE, ALTER}, DESCRIBE_CONFIGS: {DESCRIBE_CONFIGS, ALTER_CONFIGS}}
#: The operations that there are on each type of resource.
OPERATIONS = {
    TOPIC: (READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS),
    GROUP: (READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS),
    CLUSTER: (CREATE, ALTER, DESCRIBE, CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE),
    TRANSACTIONAL_ID: (WRITE, DESCRIBE, TWO_PHASE_COMMIT),
}


class Who(NamedTuple):
    """A client: its principal, as ``User:alice``, and the address of its machine."""

    principal: str
    host: str


class Acl(NamedTuple):
    """One rule: whom it allows or denies an operation on the resources whose names fit a pattern."""

    kind: int
    name: str
    pattern: int
    principal: str
    host: str
    operation: int
    permission: int

    def is_for(self, who: Who) -> bool:
        """Return whether it is about a client."""
        return self.principal in (who.principal, _ANYBODY) and self.host in (who.host, _ANYTHING)

    def covers(self, operation: int) -> bool:
        """Return whether it covers an operation; a denial implies no other operation."""
        implied = _IMPLY.get(operation, {operation}) if self.permission == ALLOW else {operation}
        return self.operation == ALL or self.operation in implied


def acls_of(records: Iterable[Mapping[str, Any]]) -> dict[str, Acl]:
    """Return the ACLs in records of a cluster's metadata, by their ids."""
    return {record["id"]: Acl(*(record[name] for name in FIELDS)) for record in records}


class AclFilter(NamedTuple):
    """Which ACLs are meant; None and `ANY` fit all."""

    kind: int
    name: str | None
    pattern: int
    principal: str | None
    host: str | None
    operation: int
    permission: int

    def fits(self, acl: Acl) -> bool:
        """Return whether an ACL is meant."""
        numbers = ((self.kind, acl.kind), (self.operation, acl.operation), (self.permission, acl.permission))
        texts = ((self.principal, acl.principal), (self.host, acl.host))
        return (
            all(wanted in (ANY, value) for wanted, value in numbers)
            and all(wanted in (None, value) for wanted, value in texts)
            and self.pattern in (ANY, MATCH, acl.pattern)
            and (self.name is None or self._fits_name(acl, self.name))
        )

    def _fits_name(self, acl: Acl, name: str) -> bool:
        if self.pattern != MATCH:
            return name == acl.name
        return name.startswith(acl.name) if acl.pattern == PREFIXED else acl.name in (name, _ANYTHING)


class Acls:
    """ACLs by their ids; they do not change, so that many threads may look."""

    def __init__(self, by_id: Mapping[str, Acl] = MappingProxyType({})) -> None:
        self.by_id = dict(by_id)
        self._by_name: defaultdict[tuple[int, int, str], list[Acl]] = defaultdict(list)
        for acl in self.by_id.values():
            self._by_name[acl.kind, acl.pattern, acl.name].append(acl)
        self._lengths = sorted({len(acl.name) for acl in self.by_id.values() if acl.pattern == PREFIXED})

    def fitting(self, wanted: AclFilter) -> Iterator[tuple[str, Acl]]:
        """Yield the ACLs that are meant, with their ids."""
        return ((number, acl) for number, acl in self.by_id.items() if wanted.fits(acl))

    def about(self, kind: int, name: str) -> Iterator[Acl]:
        for literal in dict.fromkeys((name, _ANYTHING)):
            yield from self._by_name.get((kind, LITERAL, literal), ())
        for length in self._lengths:
            if length <= len(name):
                yield from self._by_name.get((kind, PREFIXED, name[:length]), ())

    def verdict(self, who: Who, operation: int, kind: int, name: str) -> bool | None:
        """Return whether something is allowed; None if the resource has no ACLs at all."""
        has_any = is_allowed = False
        for acl in self.about(kind, name):
            has_any = True
            if acl.is_for(who) and acl.covers(operation):
                if acl.permission == DENY:
                    return False
                is_allowed = True
        return is_allowed if has_any else None

    def allow_some(self, who: Who, operation: int, kind: int) -> bool:
        """Return whether there is a resource of a type on which an operation is allowed by ACLs of their own."""
        names_by_kind: dict[tuple[int, int], set[str]] = defaultdict(set)
        for acl in self.by_id.values():
            if acl.kind == kind and acl.is_for(who) and acl.operation in (operation, ALL):
                names_by_kind[acl.permission, acl.pattern].add(acl.name)
        denied, prefixes = names_by_kind[DENY, LITERAL], names_by_kind[DENY, PREFIXED]
        if _ANYTHING in denied:
            return False
        names = (names_by_kind[ALLOW, LITERAL] - denied) | names_by_kind[ALLOW, PREFIXED]
        return _ANYTHING in names_by_kind[ALLOW, LITERAL] or any(not _begins_with(name, prefixes) for name in names)


def _begins_with(name: str, prefixes: Iterable[str]) -> bool:
    return any(name.startswith(prefix) for prefix in prefixes)


class Authorizer:
    """Decides by the ACLs that `acls` returns; super users may do everything.

    `allows_without` is Kafka's ``allow.everyone.if.no.acl.found``.
    """

    def __init__(self, acls: Callable[[], Acls], super_users: Iterable[str], *, allows_without: bool) -> None:
        self._acls, self._super_users, self._allows_without = acls, frozenset(super_users), allows_without

    def allows(self, who: Who, operation: int, kind: int, name: str = CLUSTER_NAME) -> bool:
        """Return whether a client may do something to a resource."""
        if who.principal in self._super_users:
            return True
        verdict = self._acls().verdict(who, operation, kind, name)
        return self._allows_without if verdict is None else verdict

    def allows_some(self, who: Who, operation: int, kind: int) -> bool:
        """Return whether a client may do something to any resource of a type."""
        # Kafka asks about this name, for those who may use all of them.
        return self.allows(who, operation, kind, "hardcode") or self._acls().allow_some(who, operation, kind)

    def operations(self, who: Who, kind: int, name: str = CLUSTER_NAME) -> int:
        """Return the operations that a client may do on a resource, as bits."""
        return sum(1 << operation for operation in OPERATIONS[kind] if self.allows(who, operation, kind, name))
