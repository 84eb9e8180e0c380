"""Tests of server/acls.py, server/writing/access.py, server/writing/access_answers.py and
server/writing/bootstrap_checkpoint.py. ACLs are kept and enforced: each request of the table of `access.py` asks for
what stands there, and for no more.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.access import TOPICS, logged_in, requests
from helpers.certificates import make
from helpers.kafka_clients import PATIENCE_S, RawClient

import pylogseg
from pylogseg.errors import RequestError
from pylogseg.format.messages import codes, wire
from pylogseg.server import acls
from pylogseg.server.acls import CLUSTER, CLUSTER_NAME, GROUP, TOPIC, Acl, Acls, Authorizer, Who
from pylogseg.server.writing.handlers import WRITING

confluent_kafka = pytest.importorskip("confluent_kafka")
kafka_admin = pytest.importorskip("confluent_kafka.admin")

USERS = {"admin": "admin", "alice": "alice", "bob": "bob"}
SECURITY = pylogseg.Security(users=USERS, acls=True, super_users=["User:admin"])
MADE = {"numPartitions": 1, "replicationFactor": 1, "assignments": [], "configs": []}
REFUSED = {
    TOPIC: codes.TOPIC_AUTHORIZATION_FAILED,
    GROUP: codes.GROUP_AUTHORIZATION_FAILED,
    CLUSTER: codes.CLUSTER_AUTHORIZATION_FAILED,
    acls.TRANSACTIONAL_ID: codes.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
ANY_ACL = {"resourceTypeFilter": 1, "patternTypeFilter": 1, "operation": 1, "permissionType": 1,
           "resourceNameFilter": None, "principalFilter": None, "hostFilter": None}  # fmt: skip


@pytest.fixture
def broker() -> Iterator[pylogseg.Broker]:
    with pylogseg.Broker(topics=TOPICS, security=SECURITY) as found:
        yield found


def rule(kind: int, operation: int, name: str = "*", permission: int = acls.ALLOW, **more: Any) -> dict[str, Any]:
    """Return an ACL as CreateAcls has it, of Alice's."""
    name = CLUSTER_NAME if kind == CLUSTER else name
    found = {"resourceType": kind, "resourceName": name, "resourcePatternType": acls.LITERAL, "operation": operation,
             "principal": "User:alice", "host": "*", "permissionType": permission}  # fmt: skip
    return {**found, **more}


def create(client: RawClient, *rules: dict[str, Any]) -> list[int]:
    """Make ACLs and return the errors."""
    return [each["errorCode"] for each in client.ask(30, 3, {"creations": list(rules)})["results"]]


def held(client: RawClient, **wanted: Any) -> list[tuple[Any, ...]]:
    """Return the ACLs that are meant."""
    found = client.ask(29, 3, {**ANY_ACL, **wanted})
    assert found["errorCode"] == 0
    return sorted(
        (each["resourceType"], each["resourceName"], each["patternType"], *(acl[name] for name in acl))
        for each in found["resources"]
        for acl in each["acls"]
    )


def errors(value: Any) -> set[int]:
    """Return the error codes anywhere in an answer."""
    if isinstance(value, dict):
        own = {each for name, each in value.items() if name.lower().endswith("errorcode")}
        return own.union(*map(errors, value.values()))
    return set().union(*map(errors, value)) if isinstance(value, (list, tuple)) else set()


def texts(value: Any) -> set[str]:
    """Return the texts anywhere in an answer."""
    if isinstance(value, (dict, list, tuple)):
        return set().union(*map(texts, value.values() if isinstance(value, dict) else value))
    return {value} if isinstance(value, str) else set()


def asked(broker: pylogseg.Broker, key: int, version: int) -> set[int]:
    """Send the requests of a kind as Alice, each with a connection of its own; return their errors."""
    found: set[int] = set()
    with logged_in(broker.bootstrap_servers, "admin") as administrator:  # what an earlier version has done is undone
        names = [{"name": name, **MADE} for name in ("two-b", "public-b")]
        administrator.ask(19, 7, {"topics": names, "timeoutMs": 1000})
        administrator.ask(20, 5, {"topicNames": ["never"], "timeoutMs": 1000})
        commit = {"topics": [{"name": "one", "partitions": [{"partitionIndex": 0, "committedOffset": 0}]}]}
        administrator.ask(8, 9, {"groupId": "g1", "generationIdOrMemberEpoch": -1, **commit})
    for values in requests()[key]:
        with logged_in(broker.bootstrap_servers, "alice") as alice:
            found |= errors(alice.ask(key, version, values))
    return found


def versions(key: int) -> list[int]:
    """Return the first version with all fields that are asked about, and the last one."""
    offer = WRITING.offered[key]
    return sorted(
        {{0: 3, 3: 8, 10: 1, 19: 5, 35: 3}.get(key, offer.first), offer.last if key not in (0, 1, 8, 9) else 9}
    )


# ---- the table ----


def test_the_table_has_every_request() -> None:
    assert set(WRITING.apis) == {*requests(), wire.API_VERSIONS}


#: Requests that are not refused, but show less.
SHOW_LESS = {16: GROUP, 60: CLUSTER, 66: acls.TRANSACTIONAL_ID}
#: What those need that are not in the table, as their rows are not those of the request.
OTHERS: dict[int, list[tuple[int, ...]]] = {
    1: [(TOPIC, acls.READ)],
    9: [(GROUP, acls.DESCRIBE), (TOPIC, acls.DESCRIBE)],
    19: [(TOPIC, acls.CREATE, acls.CREATE), (TOPIC, acls.DESCRIBE_CONFIGS)],
}


def needs(key: int) -> list[tuple[int, ...]]:
    """Return what a request needs: type, operation, and the operation on the cluster that does as well."""
    if key in OTHERS:
        return [(*each, 0)[:3] for each in OTHERS[key]]
    kinds = {need: [need.kind] if need.kind else [TOPIC, GROUP, CLUSTER] for need in WRITING.apis[key].needs}
    return list(dict.fromkeys((kind, need.operation, need.enough) for need, each in kinds.items() for kind in each))


@pytest.mark.parametrize("key", sorted(set(requests()) - {*SHOW_LESS}))
def test_without_acls_each_request_is_refused(broker: pylogseg.Broker, key: int) -> None:
    for version in versions(key):
        assert asked(broker, key, version) & {*REFUSED.values()}, version


@pytest.mark.parametrize("key", sorted(set(requests()) - {*SHOW_LESS}))
def test_each_request_needs_what_stands_in_the_table(broker: pylogseg.Broker, key: int) -> None:
    """With all that it needs it is not refused; if one of these is denied, it is, with the error of that resource."""
    with logged_in(broker.bootstrap_servers, "admin") as administrator:
        allowed = [rule(kind, operation) for kind, operation, _ in needs(key)]
        create(administrator, *allowed, *(rule(CLUSTER, enough) for *_, enough in needs(key) if enough))
        for version in versions(key):
            assert not asked(broker, key, version) & {*REFUSED.values()}, version
        create(administrator, *(rule(kind, acls.ALL) for kind in REFUSED))
        for kind, operation, enough in needs(key):
            denied = [rule(kind, operation, permission=acls.DENY)]
            if enough:
                denied.append(rule(CLUSTER, enough, permission=acls.DENY))
            if key == 22 and kind == CLUSTER:  # whoever may write to some topic may do this too
                denied.append(rule(TOPIC, acls.WRITE, permission=acls.DENY))
            create(administrator, *denied)
            for version in versions(key):
                assert REFUSED[kind] in asked(broker, key, version), (version, kind, operation)
            administrator.ask(31, 3, {"filters": [{**ANY_ACL, "permissionType": acls.DENY}]})


def test_what_may_not_be_described_is_not_shown(broker: pylogseg.Broker) -> None:
    with (
        logged_in(broker.bootstrap_servers, "admin") as administrator,
        logged_in(broker.bootstrap_servers, "alice") as alice,
    ):
        commit = {"topics": [{"name": "one", "partitions": [{"partitionIndex": 0, "committedOffset": 0}]}]}
        for group in ("g1", "g2"):
            administrator.ask(8, 9, {"groupId": group, "generationIdOrMemberEpoch": -1, **commit})
            administrator.ask(22, 4, {"transactionalId": f"t-{group}", "transactionTimeoutMs": 1000, "producerId": -1})
        hidden = [(3, {"topics": None}), (75, {"topics": [], "responsePartitionLimit": 10}), (16, {}), (66, {})]
        for key, values in hidden:
            assert not texts(alice.ask(key, 0 if key == 75 else WRITING.offered[key].last - 2, values)) & {
                "one", "g1", "t-g1"}  # fmt: skip
        create(administrator, rule(TOPIC, acls.WRITE, "o", resourcePatternType=acls.PREFIXED),
               rule(GROUP, acls.DESCRIBE, "g1"), rule(acls.TRANSACTIONAL_ID, acls.DESCRIBE, "t-g1"))  # fmt: skip
        shown = alice.ask(3, 8, {"topics": None, "includeTopicAuthorizedOperations": True})["topics"]
        assert [each["name"] for each in shown] == ["one"]
        assert shown[0]["topicAuthorizedOperations"] == 1 << acls.WRITE | 1 << acls.DESCRIBE
        assert [each["groupId"] for each in alice.ask(16, 4, {})["groups"]] == ["g1"]
        listed = alice.ask(66, 1, {"durationFilter": -1})["transactionStates"]
        assert [each["transactionalId"] for each in listed] == ["t-g1"]
        everything = alice.ask(9, 8, {"groups": [{"groupId": "g1", "topics": None}]})["groups"][0]
        assert [each["name"] for each in everything["topics"]] == ["one"]
        assert alice.ask(60, 0, {"includeClusterAuthorizedOperations": True})["clusterAuthorizedOperations"] == 0


def test_a_subscription_by_regex_shows_no_hidden_topic(broker: pylogseg.Broker) -> None:
    beat = {"groupId": "g-regex", "memberId": "m", "rebalanceTimeoutMs": 1000, "subscribedTopicRegex": ".*",
            "topicPartitions": []}  # fmt: skip
    with (
        logged_in(broker.bootstrap_servers, "admin") as administrator,
        logged_in(broker.bootstrap_servers, "alice") as alice,
    ):
        create(administrator, rule(GROUP, acls.READ, "g-regex"), rule(TOPIC, acls.DESCRIBE, "one"))
        rows = alice.ask(68, 1, beat)["assignment"]["topicPartitions"]
        assert [row["topicId"] for row in rows] == [broker.catalog.topics["one"].id]


def test_topics_come_into_being_for_those_who_may_create_them(broker: pylogseg.Broker) -> None:
    with (
        logged_in(broker.bootstrap_servers, "admin") as administrator,
        logged_in(broker.bootstrap_servers, "alice") as alice,
    ):
        create(administrator, rule(TOPIC, acls.DESCRIBE), rule(TOPIC, acls.CREATE, "mine"))
        rows = alice.ask(3, 8, {"topics": [{"name": "mine"}, {"name": "yours"}], "allowAutoTopicCreation": True})
        assert {each["name"]: each["errorCode"] for each in rows["topics"]} == {
            "mine": 0, "yours": codes.TOPIC_AUTHORIZATION_FAILED}  # fmt: skip
        assert "yours" not in broker.topics


def test_records_without_acks_that_are_refused_end_the_connection(broker: pylogseg.Broker) -> None:
    with logged_in(broker.bootstrap_servers, "alice") as alice:
        alice.send(0, 9, {**requests()[0][0], "acks": 0})
        assert alice.is_closed()
    assert not broker.records("one")


# ---- the rules ----

ALICE = Who("User:alice", "10.0.0.1")


def acl(operation: int, name: str = "orders", **more: Any) -> Acl:
    found = Acl(TOPIC, name, acls.LITERAL, "User:alice", "*", operation, acls.ALLOW)
    return found._replace(**more)


def test_what_acls_allow() -> None:
    deny = {"permission": acls.DENY}
    cases: list[tuple[list[Acl], int, bool]] = [
        ([], acls.READ, False),
        ([acl(acls.READ)], acls.READ, True),
        ([acl(acls.READ)], acls.WRITE, False),
        ([acl(acls.ALL)], acls.ALTER_CONFIGS, True),
        ([acl(acls.READ, "*")], acls.READ, True),
        ([acl(acls.READ, "ord", pattern=acls.PREFIXED)], acls.READ, True),
        ([acl(acls.READ, "ord")], acls.READ, False),
        ([acl(acls.READ, "orders-", pattern=acls.PREFIXED)], acls.READ, False),
        ([acl(acls.READ, "*", pattern=acls.PREFIXED)], acls.READ, False),
        ([acl(acls.READ), acl(acls.READ, "o", pattern=acls.PREFIXED, **deny)], acls.READ, False),
        ([acl(acls.READ), acl(acls.ALL, "*", **deny)], acls.READ, False),
        ([acl(acls.READ, principal="User:*")], acls.READ, True),
        ([acl(acls.READ, principal="User:bob")], acls.READ, False),
        ([acl(acls.READ, principal="Group:alice")], acls.READ, False),
        ([acl(acls.READ, host="10.0.0.1")], acls.READ, True),
        ([acl(acls.READ, host="10.0.0.2")], acls.READ, False),
        ([acl(acls.READ), acl(acls.READ, host="10.0.0.1", **deny)], acls.READ, False),
        ([acl(acls.READ, kind=GROUP)], acls.READ, False),
        *(([acl(each)], acls.DESCRIBE, True) for each in (acls.READ, acls.WRITE, acls.DELETE, acls.ALTER)),
        *(([acl(each)], acls.DESCRIBE, False) for each in (acls.CREATE, acls.ALTER_CONFIGS, acls.DESCRIBE_CONFIGS)),
        ([acl(acls.ALTER_CONFIGS)], acls.DESCRIBE_CONFIGS, True),
        ([acl(acls.DESCRIBE), acl(acls.READ, **deny)], acls.DESCRIBE, True),
    ]
    for rules, operation, is_allowed in cases:
        held_now = Acls({str(number): each for number, each in enumerate(rules)})
        found = Authorizer(lambda held_now=held_now: held_now, ["User:root"], allows_without=False)  # type: ignore[misc]
        assert found.allows(ALICE, operation, TOPIC, "orders") == is_allowed, (rules, operation)
        assert found.allows(Who("User:root", "10.9.9.9"), operation, TOPIC, "orders")
        # Whoever has no ACL may do what no ACL is about.
        found = Authorizer(lambda held_now=held_now: held_now, [], allows_without=True)  # type: ignore[misc]
        is_free = not any(held_now.about(TOPIC, "orders"))
        assert found.allows(ALICE, operation, TOPIC, "orders") == (is_allowed or is_free), (rules, operation)


def test_some_topic_may_be_written_to() -> None:
    deny = {"permission": acls.DENY}
    cases: list[tuple[list[Acl], bool]] = [
        ([], False),
        ([acl(acls.WRITE)], True),
        ([acl(acls.READ)], False),
        ([acl(acls.WRITE), acl(acls.WRITE, **deny)], False),
        ([acl(acls.WRITE), acl(acls.WRITE, "o", pattern=acls.PREFIXED, **deny)], False),
        ([acl(acls.WRITE), acl(acls.WRITE, "orders-", pattern=acls.PREFIXED, **deny)], True),
        ([acl(acls.WRITE), acl(acls.ALL, "*", **deny)], False),
        ([acl(acls.WRITE, "*"), acl(acls.WRITE, **deny)], True),
        ([acl(acls.WRITE, "o", pattern=acls.PREFIXED), acl(acls.WRITE, **deny)], True),
    ]
    for rules, is_allowed in cases:
        found = Acls({str(number): each for number, each in enumerate(rules)})
        assert Authorizer(lambda found=found: found, [], allows_without=False).allows_some(  # type: ignore[misc]
            ALICE, acls.WRITE, TOPIC) == is_allowed, rules  # fmt: skip


# ---- ACLs that clients make ----


def test_acls_are_listed_filtered_and_deleted(broker: pylogseg.Broker) -> None:
    with logged_in(broker.bootstrap_servers, "admin") as client:
        rules = [rule(TOPIC, acls.READ, "orders"), rule(TOPIC, acls.READ, "ord", resourcePatternType=acls.PREFIXED),
                 rule(TOPIC, acls.READ), rule(GROUP, acls.READ, "orders", principal="User:bob")]  # fmt: skip
        assert create(client, *rules, rules[0]) == [0] * 5
        assert len(held(client)) == 4
        assert len(held(client, resourceTypeFilter=TOPIC)) == 3
        assert [each[1] for each in held(client, resourceNameFilter="orders", resourceTypeFilter=TOPIC)] == ["orders"]
        matching = held(client, resourceNameFilter="orders", resourceTypeFilter=TOPIC, patternTypeFilter=acls.MATCH)
        assert [each[1] for each in matching] == ["*", "ord", "orders"]
        assert [each[3] for each in held(client, principalFilter="User:bob")] == ["User:bob"]
        assert held(client, hostFilter="10.0.0.1") == held(client, operation=acls.WRITE) == []
        gone = client.ask(31, 3, {"filters": [{**ANY_ACL, "resourceTypeFilter": TOPIC}, {**ANY_ACL, "operation": 9}]})
        assert [len(each["matchingAcls"]) for each in gone["filterResults"]] == [3, 0]
        assert [each[0] for each in held(client)] == [GROUP]


def test_what_is_no_acl_is_refused(broker: pylogseg.Broker) -> None:
    with logged_in(broker.bootstrap_servers, "admin") as client:
        bad = [rule(1, 3), rule(9, 3), rule(TOPIC, 1), rule(TOPIC, 99), rule(TOPIC, 3, ""),
               rule(TOPIC, 3, permission=1), rule(TOPIC, 3, resourcePatternType=2), rule(TOPIC, 3, principal="alice"),
               {**rule(CLUSTER, 3), "resourceName": "other"}]  # fmt: skip
        assert create(client, *bad, rule(TOPIC, 3)) == [codes.INVALID_REQUEST] * len(bad) + [0]
        assert len(held(client)) == 1
        unknown = client.ask(31, 3, {"filters": [{**ANY_ACL, "operation": 99}]})["filterResults"]
        assert [each["errorCode"] for each in unknown] == [codes.INVALID_REQUEST]
        client.send(29, 3, {**ANY_ACL, "operation": 0})
        assert client.is_closed()


def test_how_many_acls_there_may_be(broker: pylogseg.Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pylogseg.server.writing.access_answers.MOST_ACLS", 2)
    with logged_in(broker.bootstrap_servers, "admin") as client:
        assert create(client, rule(TOPIC, 3), rule(TOPIC, 4)) == [0, 0]
        assert create(client, rule(TOPIC, 3), rule(TOPIC, 5), rule(TOPIC, 3, "")) == [
            codes.POLICY_VIOLATION, codes.POLICY_VIOLATION, codes.INVALID_REQUEST]  # fmt: skip
        monkeypatch.setattr("pylogseg.server.writing.access_answers.MOST_ACLS", 100)
        monkeypatch.setattr("pylogseg.server.writing.access_answers.MOST_BYTES", 1000)
        assert create(client, rule(TOPIC, 3, "n" * 1001)) == [codes.POLICY_VIOLATION]
        assert len(held(client)) == 2


# ---- users, and a directory ----


def test_a_directory_keeps_acls_and_users(tmp_path: Path) -> None:
    path = tmp_path / "own"
    with pylogseg.Broker(path, topics=TOPICS, security=SECURITY) as broker:
        with logged_in(broker.bootstrap_servers, "admin") as client:
            create(client, rule(TOPIC, acls.READ, "one", principal="User:carol"), rule(GROUP, acls.READ))
            before = held(client)
        administrator = kafka_admin.AdminClient(settings(broker, "admin", "PLAIN"))
        credential = kafka_admin.ScramCredentialInfo(kafka_admin.ScramMechanism.SCRAM_SHA_512, 8192)
        made = kafka_admin.UserScramCredentialUpsertion("carol", credential, b"sesame")
        for each in administrator.alter_user_scram_credentials([made]).values():
            each.result(PATIENCE_S)
    assert b"sesame" not in (path / "bootstrap.checkpoint").read_bytes()
    with pylogseg.Broker(path, security=SECURITY) as broker:
        with logged_in(broker.bootstrap_servers, "admin") as client:
            assert held(client) == before
        administrator = kafka_admin.AdminClient(settings(broker, "admin", "PLAIN"))
        (found,) = administrator.describe_user_scram_credentials(["carol"]).values()
        described = found.result(PATIENCE_S).scram_credential_infos
        assert [(each.mechanism.name, each.iterations) for each in described] == [("SCRAM_SHA_512", 8192)]
        metadata = kafka_admin.AdminClient(settings(broker, "carol", "SCRAM-SHA-512", "sesame")).list_topics(
            timeout=PATIENCE_S)  # fmt: skip
        assert list(metadata.topics) == ["one"]
        removed = kafka_admin.UserScramCredentialDeletion("carol", kafka_admin.ScramMechanism.SCRAM_SHA_512)
        for each in administrator.alter_user_scram_credentials([removed]).values():
            each.result(PATIENCE_S)
        with pytest.raises(confluent_kafka.KafkaException):
            kafka_admin.AdminClient(settings(broker, "carol", "SCRAM-SHA-512", "sesame")).list_topics(timeout=2.0)


def settings(broker: pylogseg.Broker, user: str, mechanism: str, password: str | None = None) -> dict[str, Any]:
    return {"bootstrap.servers": broker.bootstrap_servers, "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism, "sasl.username": user, "sasl.password": password or user}  # fmt: skip


def test_users_that_are_refused(broker: pylogseg.Broker) -> None:
    def altered(client: RawClient, deletions: Any = (), **more: Any) -> dict[str, int]:
        made = {"name": "carol", "mechanism": 1, "iterations": 4096, "salt": b"salt", "saltedPassword": b"p", **more}
        found = client.ask(51, 0, {"deletions": deletions, "upsertions": [made]})["results"]
        return {each["user"]: each["errorCode"] for each in found}

    with logged_in(broker.bootstrap_servers, "admin") as client:
        assert altered(client, iterations=4095) == {"carol": codes.UNACCEPTABLE_CREDENTIAL}
        assert altered(client, iterations=16385) == {"carol": codes.UNACCEPTABLE_CREDENTIAL}
        assert altered(client, name="") == {"": codes.UNACCEPTABLE_CREDENTIAL}
        assert altered(client, mechanism=3) == {"carol": codes.UNSUPPORTED_SASL_MECHANISM}
        assert altered(client, salt=bytes(2000)) == {"carol": codes.UNACCEPTABLE_CREDENTIAL}
        assert altered(client, name="bob") == {"bob": codes.UNACCEPTABLE_CREDENTIAL}, "bob is the server's own"
        same = [{"name": "carol", "mechanism": 1}]
        assert altered(client, same) == {"carol": codes.DUPLICATE_RESOURCE}
        gone = [{"name": "dave", "mechanism": 1}]
        assert altered(client, gone) == {"dave": codes.RESOURCE_NOT_FOUND, "carol": 0}
        twice = {"users": [{"name": "carol"}, {"name": "carol"}, {"name": "dave"}]}
        found = client.ask(50, 0, twice)["results"]
        assert {each["user"]: each["errorCode"] for each in found} == {
            "carol": codes.DUPLICATE_RESOURCE, "dave": codes.RESOURCE_NOT_FOUND}  # fmt: skip
        (carol,) = client.ask(50, 0, {"users": None})["results"]
        assert (carol["user"], carol["credentialInfos"]) == ("carol", [{"mechanism": 1, "iterations": 4096}])


# ---- who somebody is ----


def test_whoever_has_not_logged_in_is_anonymous() -> None:
    anonymous = pylogseg.Security(acls=True, super_users=["User:ANONYMOUS"])
    with pylogseg.Broker(topics=TOPICS, security=anonymous) as broker, RawClient(broker.bootstrap_servers) as client:
        assert not errors(client.ask(3, 8, {"topics": None})) - {0}
        assert create(client, rule(TOPIC, 3)) == [0]


def test_a_certificate_says_who_somebody_is(tmp_path: Path) -> None:
    certificates = make(tmp_path)

    named = pylogseg.Security(certificates.server, certificates.server_key, certificates.ca, acls=True,
                              super_users=["User:CN=client"])  # fmt: skip
    with pylogseg.Broker(topics=TOPICS, security=named) as broker, RawClient(broker.bootstrap_servers) as client:
        context = ssl.create_default_context(cafile=str(certificates.ca))
        context.check_hostname = False
        context.load_cert_chain(certificates.client, certificates.client_key)
        client.socket = context.wrap_socket(client.socket)
        assert create(client, rule(TOPIC, 3)) == [0]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"acls": True}, "nobody could do anything"),
        ({"super_users": ["User:a"]}, "need ACLs"),
        ({"allow_everyone_if_no_acl_found": True}, "need ACLs"),
        ({"acls": True, "super_users": ["admin"]}, "User:NAME"),
    ],
)
def test_options_that_do_not_fit(options: dict[str, Any], words: str) -> None:
    with pytest.raises(RequestError, match=words):
        pylogseg.Broker(security=pylogseg.Security(**options))


def test_a_server_that_only_reads_has_no_acls(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="pylogseg broker"):
        pylogseg.serve(tmp_path, security=SECURITY)


def test_everybody_may_use_what_no_acl_is_about() -> None:
    free = pylogseg.Security(users=USERS, acls=True, super_users=["User:admin"], allow_everyone_if_no_acl_found=True)
    with pylogseg.Broker(topics=TOPICS, security=free) as broker:
        with logged_in(broker.bootstrap_servers, "admin") as client:
            create(client, rule(TOPIC, acls.READ, "one", principal="User:bob"))
        with logged_in(broker.bootstrap_servers, "alice") as alice:
            rows = alice.ask(3, 8, {"topics": [{"name": name} for name in ("one", "two")]})["topics"]
            assert {each["name"]: each["errorCode"] for each in rows} == {
                "one": codes.TOPIC_AUTHORIZATION_FAILED, "two": 0}  # fmt: skip


def test_answers_that_are_refused_have_all_fields(broker: pylogseg.Broker) -> None:
    """In each version that is offered the answer can be read."""
    for key, values in requests().items():
        offer = WRITING.offered[key]
        for version in range(max(offer.first, 3 if key == 0 else 0), offer.last + 1):
            with logged_in(broker.bootstrap_servers, "alice") as alice:
                for each in values:
                    assert alice.ask(key, version, each) is not None
    assert wire.API_VERSIONS not in requests()
