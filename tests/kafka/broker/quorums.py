#!/usr/bin/env python3
"""Quorums of a real Kafka that lose their majority and start again: `pylogseg quorum rescue`, its steps word for word.

    [KAFKA_VERSION=4.4.0] quorums.py [CASE...] [--random N] [--seed SEED] [--keep DIR]

Cases: `a` one of three controllers survives, in place; `b` the same with static voters; `c` none survives, three new
ones come from a broker's copy; `d` the survivor is shorter than the brokers: refused by name, then as `c`; `g` as `a`
with trimmed logs and controllers that come back with their old disks; `h` all controllers have other addresses; `r`
both roles in one process; `f` two of five. `--random` histories, by seed: topics, ACLs, SCRAM users, settings, leader
changes, snapshots, torn tails; one of three, none of three or two of five controllers survive, or one of three nodes of
both roles; voters are static or dynamic; old controllers come back with their disks and follow as observers; a static
quorum grows by its printed step, and a dynamic one loses the rescued controller by `remove-controller`. Each node has a
folder with Kafka's own names of scripts, and the printed steps are run there. At the end no broker has ended, each
acknowledged record is read, and the state of the cluster is that of the longest copy.
"""

from __future__ import annotations

import contextlib
import json
import random
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

# A neighbour, which is no package:
from quorum_lab import (
    LABS,
    Lab,
    Node,
    Step,
    follow,
    free_port,
    log_of,
    must,
    parser_of,
    play_rounds,
    pylogseg,
    rescue,
    say,
    steps_of,
    wait_for,
)

from pylogseg.format.control_batches import empty_batch
from pylogseg.inspect.quorum.copies import read_copies
from pylogseg.inspect.quorum.pairs import changes_between
from pylogseg.values.internal.image import Image

# ---- histories ----


def disks(lab: Lab, nodes: Sequence[Node]) -> list[Path]:
    return [node.data for node in nodes]


def image_of(folders: Sequence[Path]) -> Image:
    """Return the state by the longest copy."""
    copies = [copy for folder in folders for copy in read_copies(str(folder)) if copy.is_whole]
    best = max(copies, key=lambda copy: copy.rank)
    return Image.read(best.partition, best.end)  # type: ignore[arg-type]


def compare_images(before: Image, folder: Path) -> None:
    """Check that a controller has all that the longest copy had: what came later may be more."""
    (copy,) = read_copies(str(folder))
    must(copy.is_whole, f"{folder}: {copy.error}")
    after = Image.read(copy.partition, before.offset)  # type: ignore[arg-type]
    other = list(changes_between(before, after))
    must(not other, f"the state differs: {other[:5]}")


def survive(lab: Lab, survivors: Sequence[Node], *, lose: bool = True) -> None:
    for node in lab.controllers:
        node.kill(lose=lose and node not in survivors)


def after_all(lab: Lab, before: Image) -> None:
    """The state, records, a new topic: all that a rescue has to leave."""
    compare_images(before, lab.controllers[0].data)
    for name in [*lab.partitions]:
        must(name in before.topic_ids, f"the longest copy lacks {name}")
    wait_for("a topic after the rescue", lambda: lab.create("after"), 180)
    must(lab.produce("after", 30) == 30, "records of the new topic are not acknowledged")
    for topic in [*lab.partitions]:
        if topic != "after":
            wait_for(f"records of {topic}", lambda topic=topic: lab.produce(topic, 30) == 30, 180)
    lab.check()


def grown(lab: Lab, survivor: Node) -> None:
    """The survivor goes, and the quorum goes on without it."""
    survivor.kill()
    wait_for("a topic without the survivor", lambda: lab.create(f"without{survivor.number}"), 180)
    lab.check()


def is_wipe(step: Step) -> bool:
    return " wipe " in step.text or "comes back, remove" in step.text


def is_growth(step: Step) -> bool:
    return "When " in step.text


def come_back(survivor: Node, others: Sequence[Node]) -> None:
    """Start old controllers as they were, with their disks and settings: they are observers."""
    for node in others:
        node.start()
    wait_for("old controllers as observers", lambda: all(is_observer(survivor, node) for node in others), 180)
    say(f"  observers, with their old disks: {', '.join(str(node.number) for node in others)}")


def is_observer(survivor: Node, node: Node) -> bool:
    status = survivor.run(
        f"bin/kafka-metadata-quorum.sh --bootstrap-controller {survivor.address} describe --replication", check=False
    )
    rows = [line.split() for line in status.splitlines() if line.split()[:1] == [str(node.number)]]
    return bool(rows) and rows[0][-1] == "Observer" and node.is_up


def history(lab: Lab, events: int) -> None:
    """Do things that the metadata log has to keep."""
    admin, chance = lab.admin(), lab.chance
    for i in range(events):
        kind = chance.choice(("topic", "topic", "records", "acl", "user", "setting", "partitions", "remove", "leader"))
        names = sorted(lab.partitions)
        with contextlib.suppress(KafkaException, TimeoutError):
            if kind == "topic" or not names:
                lab.create(f"t{i}", chance.randrange(1, 5))
            elif kind == "records":
                lab.produce(chance.choice(names), chance.randrange(1, 300))
            elif kind == "acl":
                name, kind_of_name = chance.choice(names), ResourcePatternType.LITERAL
                binding = AclBinding(ResourceType.TOPIC, name, kind_of_name, f"User:u{i}", "*",
                                     AclOperation.READ, AclPermissionType.ALLOW)  # fmt: skip
                for done in admin.create_acls([binding]).values():
                    done.result(30)
            elif kind == "user":
                change = UserScramCredentialUpsertion(
                    f"u{i}", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 8192), b"secret"
                )
                for done in admin.alter_user_scram_credentials([change]).values():
                    done.result(30)
            elif kind == "setting":
                entry = ConfigEntry("retention.ms", str(10**9 + i), incremental_operation=AlterConfigOpType.SET)
                resource = ConfigResource(ConfigResource.Type.TOPIC, chance.choice(names), incremental_configs=[entry])
                for done in admin.incremental_alter_configs([resource]).values():
                    done.result(30)
            elif kind == "partitions":
                name = chance.choice(names)
                admin.create_partitions([NewPartitions(name, lab.partitions[name] + 1)])[name].result(30)
                lab.partitions[name] += 1
            elif kind == "remove" and len(names) > 2:
                name = chance.choice(names)
                admin.delete_topics([name])[name].result(30)
                del lab.partitions[name]
            elif kind == "leader":
                leader = lab.leader()
                leader.kill()
                time.sleep(3)
                leader.start()
                time.sleep(20 if lab.both else 8)


# ---- cases ----


def begin(lab: Lab, records: int = 3000) -> None:
    """Start a lab, with a topic that has some records."""
    lab.start()
    wait_for("a topic", lambda: lab.create("orders"))
    if records:
        lab.produce("orders", records)


def follower(lab: Lab) -> Node:
    """Draw a controller that does not lead."""
    return lab.chance.choice([node for node in lab.controllers if node is not lab.leader()])


def in_place(lab: Lab, survivor: Node) -> list[object]:
    """Return the options that rescue a survivor's disk in its place."""
    voter = f"{survivor.number}@{survivor.address}"
    return ["--in-place", survivor.data, "--keep", lab.root / "kept", "--voter", voter]


def rescue_in_place(lab: Lab, survivor: Node, *folders: Path, codes: Sequence[int] = (0,)) -> str:
    """Rescue the survivor's disk, which is the first controller from then on; return the printed text."""
    text = rescue(*folders, *in_place(lab, survivor), codes=codes)
    lab.controllers.sort(key=lambda node: node is not survivor)
    return text


def case_a(root: Path, chance: random.Random, *, static: bool = False) -> None:
    lab = Lab(root, chance, static=static)
    begin(lab)
    survivor = follower(lab)
    survive(lab, [survivor])
    must(lab.produce("orders", 300) == 300, "brokers do not go on without controllers")
    before = image_of([survivor.data, *disks(lab, lab.brokers)])
    text = rescue_in_place(lab, survivor, survivor.data, *disks(lab, lab.brokers))
    follow(lab, steps_of(text))
    after_all(lab, before)
    if not static:
        grown(lab, survivor)


def case_b(root: Path, chance: random.Random) -> None:
    case_a(root, chance, static=True)


def case_c(root: Path, chance: random.Random, *, static: bool = False) -> None:
    lab = Lab(root, chance, static=static)
    begin(lab)
    survive(lab, [])
    new_controllers(lab, lab.brokers)
    grown(lab, chance.choice(lab.controllers))


def new_controllers(lab: Lab, sources: Sequence[Node], *more: object, codes: Sequence[int] = (0,)) -> None:
    """Three new controllers of the longest copy, and all that has to be so."""
    before = image_of(disks(lab, sources))
    arguments = [*disks(lab, sources), *more]
    for node in lab.controllers:
        node.data = node.home / "new"
        arguments += ["--into", node.data, "--voter", f"{node.number}@{node.address}"]
    follow(lab, steps_of(rescue(*arguments, codes=codes)))
    after_all(lab, before)


def case_d(root: Path, chance: random.Random) -> None:
    lab = Lab(root, chance, static=False)
    begin(lab, 300)
    survivor = follower(lab)
    survivor.kill()
    wait_for("a topic that the survivor lacks", lambda: lab.create("late"))
    lab.produce("late", 300)
    survive(lab, [survivor])
    nodes = [survivor, *lab.brokers]
    code, text, errors = pylogseg("quorum", "rescue", *disks(lab, nodes), *in_place(lab, survivor), "--write")
    must(code == 2 and "late" in errors, f"a shorter copy is not refused by name: {code} {text} {errors}")
    code, text, errors = pylogseg("quorum", *disks(lab, nodes))
    must(code == 0 and "late" in text, f"the look does not name the topic: {code} {text} {errors}")
    new_controllers(lab, nodes)


def case_g(root: Path, chance: random.Random) -> None:
    settings = {
        "metadata.log.max.record.bytes.between.snapshots": "3000",
        "metadata.log.segment.bytes": "8388608",
        "metadata.log.segment.ms": "4000",
        "metadata.max.retention.bytes": "20000",
        "metadata.max.retention.ms": "20000",
        "metadata.max.idle.interval.ms": "100",
    }
    lab = Lab(root, chance, static=False, settings=settings)
    begin(lab)
    history(lab, 12)
    survivor = follower(lab)
    wait_for("a trimmed log", lambda: (read_copies(str(survivor.data))[0].start or 0) > 0, 150)
    survive(lab, [survivor], lose=False)
    others = [node for node in lab.controllers if node is not survivor]
    before = image_of([survivor.data, *disks(lab, lab.brokers)])
    text = rescue_in_place(lab, survivor, survivor.data, *disks(lab, lab.brokers))
    follow(lab, (step for step in steps_of(text) if not is_wipe(step) and not is_growth(step)))
    come_back(survivor, others)
    after_all(lab, before)


def case_h(root: Path, chance: random.Random) -> None:
    lab = Lab(root, chance, static=False)
    begin(lab)
    for node in lab.nodes:
        node.kill()
    before = image_of(disks(lab, lab.nodes))
    arguments: list[object] = [*disks(lab, lab.nodes)]
    for node in lab.controllers:
        old, node.controller_port = node.address, free_port()
        node.data = node.home / "new"
        arguments += ["--rename", f"{old}={node.address}", "--into", node.data]
    follow(lab, steps_of(rescue(*arguments)))
    after_all(lab, before)


def case_r(root: Path, chance: random.Random) -> None:
    lab = Lab(root, chance, static=False, both=True)
    begin(lab)
    survivor = follower(lab)
    nodes = [*lab.controllers]
    for node in nodes:
        node.kill()
    for node in nodes:
        if node is not survivor:  # the disk of the metadata is lost, and that of the topics is not
            shutil.rmtree(node.data / "__cluster_metadata-0")
    before = image_of([survivor.data])
    text = rescue_in_place(lab, survivor, survivor.data, codes=(0, 1))
    follow(lab, steps_of(text))
    after_all(lab, before)


def case_f(root: Path, chance: random.Random) -> None:
    lab = Lab(root, chance, static=False, controllers=5)
    begin(lab)
    survivors = chance.sample(lab.controllers, 2)
    survive(lab, survivors)
    copies = {node.number: read_copies(str(node.data))[0] for node in survivors}
    survivor = max(survivors, key=lambda node: copies[node.number].rank)
    before = image_of(disks(lab, [*survivors, *lab.brokers]))
    text = rescue_in_place(lab, survivor, *disks(lab, [*survivors, *lab.brokers]))
    follow(lab, steps_of(text))
    after_all(lab, before)
    grown(lab, survivor)


def torn_tail(node: Node, chance: random.Random) -> bytes:
    """What a crash may leave: a part of a batch, or zeros."""
    (copy,) = read_copies(str(node.data))
    batch = empty_batch(
        base_offset=copy.end or 0, last_offset=copy.end or 0, max_timestamp_ms=1, leader_epoch=copy.epoch or 0
    )
    return bytes(batch[: chance.randrange(1, 61)]) if chance.random() < 0.5 else bytes(4096)


CASES = {"a": case_a, "b": case_b, "c": case_c, "d": case_d, "f": case_f, "g": case_g, "h": case_h, "r": case_r}


SHAPES = "1 of 3", "1 of 3", "0 of 3", "2 of 5", "both roles, 1 of 3", "both roles, 1 of 3"


def random_case(root: Path, chance: random.Random) -> None:
    """A history, a loss, a rescue."""
    settings = {}
    if chance.random() < 0.5:
        settings = {"metadata.log.max.record.bytes.between.snapshots": str(chance.choice((2000, 20000)))}
    static, shape = chance.random() < 0.4, chance.choice(SHAPES)
    lab = Lab(root, chance, static=static, settings=settings, controllers=5 if "5" in shape else 3,
              both="both" in shape)  # fmt: skip
    say(f"  {'static' if static else 'dynamic'}, {shape}, {settings}")
    begin(lab, 0)
    history(lab, chance.randrange(4, 16))
    survivors = chance.sample(lab.controllers, int(shape.partition(" of")[0][-1]))
    if survivors and not lab.both and chance.random() < 0.3:
        survivors[0].kill()  # it misses what comes
        history(lab, 3)
    lost = [node for node in lab.controllers if node not in survivors]
    returning = lost[:2] if survivors and not lab.both and chance.random() < 0.4 else []
    lose(lab, lost, returning)
    for node in survivors:
        if chance.random() < 0.5:
            log = max((node.data / "__cluster_metadata-0").glob("*.log"))
            with open(log, "ab") as file:
                file.write(torn_tail(node, chance))
    nodes = [*survivors, *(() if lab.both else lab.brokers)]
    copies = {node.number: read_copies(str(node.data))[0] for node in nodes}
    best = max(copies.values(), key=lambda copy: copy.rank)
    say(f"  copies: {json.dumps({number: copy.rank for number, copy in copies.items()})}")
    survivor = max(survivors, key=lambda node: copies[node.number].rank, default=None)
    codes = (0, 1) if lab.both else (0,)
    if survivor is None or copies[survivor.number].rank < best.rank:
        if survivor is not None:
            code, _, errors = pylogseg("quorum", "rescue", *disks(lab, nodes), *in_place(lab, survivor))
            must(code == 2 and "shorter" in errors, f"a shorter copy is not refused: {code} {errors}")
            say("  the shorter survivor is refused")
        rescue_anew(lab, nodes)
        return
    if lab.both and chance.random() < 0.4:
        rescue_anew(lab, nodes, codes=codes)
        return
    before = image_of(disks(lab, nodes))
    text = rescue_in_place(lab, survivor, *disks(lab, nodes), codes=codes)
    steps = [*steps_of(text)]
    if returning:
        kept = {node.number for node in returning}
        later = [step for step in steps if is_growth(step) or (is_wipe(step) and step.number in kept)]
        follow(lab, (step for step in steps if step not in later))
        come_back(survivor, returning)
        for node in returning:  # then they go the way that the steps name
            node.kill()
            removed = next(step for step in steps if is_wipe(step) and step.number == node.number)
            for name in ("__cluster_metadata-0", "meta.properties", "bootstrap.checkpoint"):
                must(name in removed.text, f"{name} stays: {removed.text}")
                path = node.data / name
                shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        follow(lab, (step for step in steps if is_growth(step)))
    else:
        follow(lab, steps)
    if static and lab.both:  # the other brokers start when they are voters again
        compare_images(before, survivor.data)
        grow_static(lab, survivor, steps)
        return
    after_all(lab, before)
    if static:
        grow_static(lab, survivor, steps)
    else:
        leave(lab, survivor)


def lose(lab: Lab, lost: Sequence[Node], returning: Sequence[Node]) -> None:
    """Kill all controllers; the lost ones lose their disks, or of both roles their metadata log alone."""
    for node in lab.controllers:
        node.kill()
    for node in lost:
        if lab.both:
            shutil.rmtree(node.data / "__cluster_metadata-0")
        elif node not in returning:
            shutil.rmtree(node.data)


def rescue_anew(lab: Lab, nodes: Sequence[Node], *, codes: Sequence[int] = (0,)) -> None:
    """Three or five new controllers; then one of them goes."""
    new_controllers(lab, nodes, codes=codes)
    one = random.Random(len(lab.acknowledged)).choice(lab.controllers)
    if lab.static and not lab.both:
        grown(lab, one)
    elif not lab.static:
        leave(lab, one)


def leave(lab: Lab, node: Node) -> None:
    """Take a controller out of the voters; the quorum goes on without it."""
    other = next(other for other in lab.controllers if other is not node)
    directory = read_copies(str(node.data))[0].directory_id
    started = log_of(node).count("Kafka Server started")
    node.run("bin/kafka-server-stop.sh", check=False)
    node.start()  # with the line that names all
    wait_for(f"node {node.number}, started again", lambda: log_of(node).count("Kafka Server started") > started, 180)
    command = f"bin/kafka-metadata-quorum.sh --bootstrap-controller {other.address} remove-controller"
    wait_for("the rescued controller removed", lambda: "Removed" in other.run(
        f"{command} --controller-id {node.number} --controller-directory-id {directory}", check=False
    ), 120)  # fmt: skip
    if not lab.both:
        node.kill()
    wait_for(f"a topic without voter {node.number}", lambda: lab.create(f"without{node.number}"), 180)
    broker = next(broker for broker in lab.brokers if broker is not node)
    started = log_of(broker).count("Kafka Server started")
    broker.run("bin/kafka-server-stop.sh", check=False)
    broker.start()  # it finds the quorum by the line that it has
    wait_for("a broker that starts again", lambda: log_of(broker).count("Kafka Server started") > started, 180)
    lab.check()


def grow_static(lab: Lab, leader: Node, steps: Sequence[Step]) -> None:
    """Grow as the last but one step says: stop the leader, and rescue its disk for three."""
    must(any("stop node" in step.text and "three --voter" in step.text for step in steps), "no step says how to grow")
    leader.run("bin/kafka-server-stop.sh")
    nodes = [leader] if lab.both else [leader, *lab.brokers]
    lab.controllers, lab.gone = lab.controllers[:3], lab.controllers[3:]
    rescue_anew(lab, nodes, codes=(0, 1) if lab.both else (0,))


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("cases", nargs="*", metavar="CASE")
    parser.add_argument("--random", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()

    def round_of(case: Callable[[Path, random.Random], None], chance: random.Random) -> Callable[[Path], str]:
        def play(root: Path) -> str:
            case(root, chance)
            return f"records {sum(LABS[0].acknowledged.values()):,}"

        return play

    seeds = range(given.seed, given.seed + given.random)
    rounds = [(name, round_of(CASES[name], random.Random(f"{name} {given.seed}"))) for name in given.cases]
    rounds += [(f"seed {seed}", round_of(random_case, random.Random(seed))) for seed in seeds]
    return play_rounds(rounds, given.keep)


if __name__ == "__main__":
    sys.exit(main())
