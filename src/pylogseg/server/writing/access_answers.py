"""Answers to requests about ACLs, and about the users of SCRAM."""

from __future__ import annotations

import functools
import uuid
from collections import Counter
from typing import Any

from pylogseg.format.messages import codes
from pylogseg.format.messages.codes import KafkaError
from pylogseg.format.messages.wire import Values
from pylogseg.format.uuids import format_uuid
from pylogseg.server.acls import (
    ALLOW,
    ANY,
    CLUSTER,
    CLUSTER_NAME,
    DENY,
    LAST_KIND,
    LAST_OPERATION,
    LITERAL,
    PREFIXED,
    Acl,
    AclFilter,
    Acls,
)
from pylogseg.server.sasl import ITERATIONS, SCRAM, ScramCredential
from pylogseg.server.service import Call, Disconnected
from pylogseg.server.writing.admin import try_row
from pylogseg.server.writing.writer import writing_of

#: So many are kept, of each kind: each costs memory, and the file that keeps them is written anew at each change.
MOST_ACLS = MOST_USERS = 10_000
MOST_BYTES = 16 << 20
_MOST_SALT_BYTES = 1024
_NO_ACLS = {"errorCode": codes.SECURITY_DISABLED, "errorMessage": "No Authorizer is configured."}
_ENTRY = ("principal", "host", "operation", "permissionType")
_FILTER = ("resourceTypeFilter", "resourceNameFilter", "patternTypeFilter", "principalFilter", "hostFilter",
           "operation", "permissionType")  # fmt: skip


def _check_known(numbers: list[int]) -> None:
    """End the connection of a client that sends an unknown type in a filter, as Kafka does."""
    if 0 in numbers:
        raise Disconnected("a request about ACLs has UNKNOWN elements")


def _filter_of(asked: dict[str, Any]) -> AclFilter:
    wanted = AclFilter(*(asked[name] for name in _FILTER))
    _check_known([wanted.kind, wanted.pattern, wanted.operation, wanted.permission])
    return wanted


def _is_known(wanted: AclFilter) -> bool:
    kinds, operations = range(ANY, LAST_KIND + 1), range(ANY, LAST_OPERATION + 1)
    return (
        wanted.kind in kinds
        and wanted.operation in operations
        and wanted.pattern in range(ANY, PREFIXED + 1)
        and wanted.permission in range(ANY, ALLOW + 1)
    )


def _entry(acl: Acl) -> dict[str, Any]:
    return dict(zip(_ENTRY, acl[3:], strict=True))


def describe_acls(call: Call) -> Values:
    if call.service.rights is None:
        return {**_NO_ACLS, "errorMessage": "No Authorizer is configured on the broker"}
    wanted = _filter_of(call.values)
    by_resource: dict[tuple[int, str, int], list[Acl]] = {}
    for _, acl in writing_of(call).topics.acls.fitting(wanted) if _is_known(wanted) else ():
        by_resource.setdefault(acl[:3], []).append(acl)
    call.budget.spend(sum(1 + len(rows) for rows in by_resource.values()))
    return {
        "resources": [
            {"resourceType": kind, "resourceName": name, "patternType": pattern, "acls": [*map(_entry, rows)]}
            for (kind, name, pattern), rows in by_resource.items()
        ]
    }


def create_acls(call: Call) -> Values:
    asked = call.values["creations"]
    if call.service.rights is None:
        return {"results": [_NO_ACLS for _ in asked]}
    acls = [
        Acl(row["resourceType"], row["resourceName"], row["resourcePatternType"], *(row[name] for name in _ENTRY))
        for row in asked
    ]
    for acl in acls:
        _check_known([acl.kind, acl.pattern, acl.operation, acl.permission])
    rows = [try_row({}, functools.partial(_check, acl)) for acl in acls]
    good = [acl for acl, row in zip(acls, rows, strict=True) if not row.get("errorCode")]
    try:
        writing_of(call).topics.set_access(lambda acls, users: (_with(acls, good), dict(users)))
    except KafkaError as error:
        failed = {"errorCode": error.code, "errorMessage": error.text}
        rows = [row if row.get("errorCode") else failed for row in rows]
    return {"results": rows}


def _with(acls: Acls, made: list[Acl]) -> Acls:
    present = set(acls.by_id.values())
    new = [acl for acl in dict.fromkeys(made) if acl not in present]
    if len(present) + len(new) > MOST_ACLS:
        raise KafkaError(codes.POLICY_VIOLATION, f"there are {len(present)} ACLs already, of {MOST_ACLS} at most")
    if sum(map(_size, (*present, *new))) > MOST_BYTES:
        raise KafkaError(codes.POLICY_VIOLATION, f"ACLs of more than {MOST_BYTES >> 20} MiB are not kept here")
    return Acls({**acls.by_id, **{format_uuid(uuid.uuid4().bytes): acl for acl in new}})


def _size(acl: Acl) -> int:
    return len(acl.name) + len(acl.principal) + len(acl.host)


def _check(acl: Acl) -> None:
    """Raise KafkaError, in Kafka's words, for an invalid ACL."""
    why = ""
    if acl.kind == CLUSTER and acl.name != CLUSTER_NAME:
        why = f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
    elif not acl.name:
        why = "Invalid empty resource name"
    elif acl.kind not in range(ANY + 1, LAST_KIND + 1):
        why = f"Invalid resourceType {_word(acl.kind)}"
    elif acl.pattern not in (LITERAL, PREFIXED):
        why = f"Invalid patternType {_word(acl.pattern, {2: 'MATCH'})}"
    elif acl.operation not in range(ANY + 1, LAST_OPERATION + 1):
        why = f"Invalid operation {_word(acl.operation)}"
    elif acl.permission not in (DENY, ALLOW):
        why = f"Invalid permissionType {_word(acl.permission)}"
    elif ":" not in acl.principal:
        why = (
            f"Could not parse principal from `{acl.principal}` (no colon is present separating the principal type "
            "from the principal name)"
        )
    if why:
        raise KafkaError(codes.INVALID_REQUEST, why)


def _word(number: int, others: dict[int, str] | None = None) -> str:
    return {ANY: "ANY", **(others or {})}.get(number, "UNKNOWN")


def delete_acls(call: Call) -> Values:
    asked = call.values["filters"]
    if call.service.rights is None:
        return {"filterResults": [_NO_ACLS for _ in asked]}
    wanted = [_filter_of(row) for row in asked]
    rows: list[dict[str, Any]] = []

    def without(acls: Acls, users: Any) -> Any:
        matches = [_find_acls(call, acls, one) for one in wanted]
        rows[:] = [*map(_show_deleted, matches)]
        gone = {number for one in matches for number in one or ()}
        return Acls({number: acl for number, acl in acls.by_id.items() if number not in gone}), dict(users)

    try:
        writing_of(call).topics.set_access(without)
    except KafkaError as error:
        return {"filterResults": [{"errorCode": error.code, "errorMessage": error.text} for _ in asked]}
    return {"filterResults": rows}


def _find_acls(call: Call, acls: Acls, wanted: AclFilter) -> dict[str, Acl] | None:
    call.budget.spend(1 + len(acls.by_id) // 256)  # each looks at all
    if not _is_known(wanted):
        return None
    matches = dict(acls.fitting(wanted))
    call.budget.spend(len(matches))
    return matches


def _show_deleted(found: dict[str, Acl] | None) -> dict[str, Any]:
    if found is None:
        return {"errorCode": codes.INVALID_REQUEST, "errorMessage": "Unknown patternFilter."}
    return {
        "matchingAcls": [
            {"resourceType": acl.kind, "resourceName": acl.name, "patternType": acl.pattern, **_entry(acl)}
            for acl in found.values()
        ]
    }


# ---- users of SCRAM ----


def describe_users(call: Call) -> Values:
    users = writing_of(call).topics.users
    asked = Counter(user["name"] for user in call.values["users"] or ())
    by_name: dict[str, list[dict[str, int]]] = {}
    for number, mechanism in SCRAM.items():
        for (kind, name), stored in users.items():
            if kind == mechanism:
                by_name.setdefault(name, []).append({"mechanism": number, "iterations": stored.iterations})
    names = asked or Counter(by_name)
    call.budget.spend(len(names))
    return {"results": [_describe_user(name, by_name.get(name), asked[name] > 1) for name in sorted(names)]}


def fail_descriptions(call: Call, code: int, text: str | None) -> Values:
    """Return the error for each user, without their names, as Kafka."""
    return {"results": [{"user": "", "errorCode": code, "errorMessage": text} for _ in call.values["users"] or ()]}


def _describe_user(name: str, found: list[dict[str, int]] | None, is_double: bool) -> dict[str, Any]:
    if is_double:
        text = f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
        return {"user": name, "errorCode": codes.DUPLICATE_RESOURCE, "errorMessage": text}
    if found is None:
        text = f"Attempt to describe a user credential that does not exist: {name}"
        return {"user": name, "errorCode": codes.RESOURCE_NOT_FOUND, "errorMessage": text}
    return {"user": name, "credentialInfos": found}


def alter_users(call: Call) -> Values:
    """Answer AlterUserScramCredentials: the salted hash is kept, never the password."""
    asked = [*call.values["deletions"], *call.values["upsertions"]]
    names = Counter(user["name"] for user in asked)
    rows: dict[str, dict[str, Any]] = {}

    def change(acls: Acls, users: Any) -> Any:
        left = dict(users)
        for user in asked:
            name = user["name"]
            rows[name] = try_row({"user": name}, functools.partial(_alter, call, user, names, left))
        return acls, left

    try:
        writing_of(call).topics.set_access(change)
    except KafkaError as error:
        failed = {"errorCode": error.code, "errorMessage": error.text}
        return {"results": [{"user": name, **failed} for name in names]}
    return {"results": [*rows.values()]}


def fail_changes(call: Call, code: int, text: str | None) -> Values:
    names = dict.fromkeys(row["name"] for row in (*call.values["deletions"], *call.values["upsertions"]))
    return {"results": [{"user": name, "errorCode": code, "errorMessage": text} for name in names]}


def _alter(
    call: Call, asked: dict[str, Any], names: Counter[str], users: dict[tuple[str, str], ScramCredential]
) -> None:
    name, mechanism = asked["name"], SCRAM.get(asked["mechanism"])
    fixed = call.service.guard.users
    if names[name] > 1:
        raise KafkaError(codes.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request")
    if not name:
        raise KafkaError(codes.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    if mechanism is None:
        raise KafkaError(codes.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    if "iterations" not in asked:
        if users.pop((mechanism, name), None) is None:
            raise KafkaError(codes.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist")
        return
    if asked["iterations"] not in ITERATIONS:
        few = "few" if asked["iterations"] < ITERATIONS.start else "many"
        raise KafkaError(codes.UNACCEPTABLE_CREDENTIAL, f"Too {few} iterations")
    if fixed is not None and fixed.is_fixed(name):
        text = f"{name} is a user that the server was given: change it there (--users)"
        raise KafkaError(codes.UNACCEPTABLE_CREDENTIAL, text)
    salted, salt = bytes(asked["saltedPassword"]), bytes(asked["salt"])
    if max(len(salt), len(salted), len(name)) > _MOST_SALT_BYTES:
        text = f"a name, salt or password of more than {_MOST_SALT_BYTES} bytes"
        raise KafkaError(codes.UNACCEPTABLE_CREDENTIAL, text)
    if len(users) >= MOST_USERS and (mechanism, name) not in users:
        raise KafkaError(codes.POLICY_VIOLATION, f"there are {MOST_USERS} users already, which are all that may be")
    users[mechanism, name] = ScramCredential.of_salted(mechanism, salted, salt, asked["iterations"])
