// ---- overview and topics ----

const MOST_BARS = 12;
const MOST_OTHERS = 20;

function growthTiles(growth) {
  return [
    tile("Last hour", size(growth.lastHourBytes)),
    tile("Last day", size(growth.lastDayBytes)),
    tile("Last week", size(growth.lastWeekBytes)),
    tile("A day, at this rate", size(Math.round(growth.bytesPerDay))),
  ];
}

function extentOf(...series) {
  const edges = series
    .filter((each) => each.starts.length)
    .flatMap((each) => [each.starts[0], each.starts[each.starts.length - 1] + each.stepMs]);
  return edges.length ? [Math.min(...edges), Math.max(...edges)] : null;
}

// Records of clocks that are wrong by years would leave a line of all others: times after the report are a zoom away.
function untilNow(extent) {
  const end = facts.madeMs + DAY;
  return extent[0] < end && extent[1] > end ? [extent[0], end] : extent;
}

// The range of most records: without those after the report, and those long before the others (behind a year without
// records, and ten times as far as all after it).
function usual(series, extent) {
  const counted = series.starts.map((start, at) => [start, series.records[at]]).filter((each) => each[1]);
  const inside = (from, to) => counted.reduce((sum, [at, records]) => sum + (at >= from && at < to ? records : 0), 0);
  const most = inside(...extent) / 2;
  const until = untilNow(extent);
  const [from, to] = inside(...until) >= most ? until : extent;
  const starts = counted.map(([at]) => at).filter((at) => at < to);
  for (let at = starts.length - 1; at > 0; at--) {
    const behind = Math.max(365 * DAY, 10 * (starts[starts.length - 1] + series.stepMs - starts[at]));
    const isFar = starts[at] - starts[at - 1] - series.stepMs > behind;
    if (isFar) return inside(starts[at], to) >= most ? [Math.max(from, starts[at]), to] : [from, to];
  }
  return [from, to];
}

function farText(extent, [from, to]) {
  const late = extent[1] > to ? ` Some records have times after this report, up to ${timeText(extent[1])}.` : "";
  return extent[0] < from ? `${late} Some records have times long before the others, from ${timeText(extent[0])}.` : late;
}

function growthPart(fact, title) {
  const sources = {
    "Hours of a week": fact.growth.hours,
    "Days of 90": fact.growth.days,
    "All of the time": fact.series,
  };
  const kept = Object.fromEntries(Object.entries(sources).filter(([, each]) => each.starts.length));
  const extent = extentOf(...Object.values(kept));
  if (!extent) return [tiles(growthTiles(fact.growth)), hint("No record has a time.")];
  // The first that is more than a few bars.
  const first = Object.keys(kept).find((name) => kept[name].starts.length > 3) || Object.keys(kept).pop();
  const zoom = makeZoom(extent);
  zoom.range = usual(kept[first], extentOf(kept[first]));
  return [
    tiles(growthTiles(fact.growth)),
    zoomBar(zoom),
    timeChart(title, kept, zoom, first),
    hint(
      "By the times of records, in UTC; bytes are those of whole batches, as stored.",
      farText(extent, usual(fact.series, extent)),
      fact.series.isEstimate ? " Estimated: not every batch header was read." : "",
      fact.series.untimed
        ? ` ${plural(fact.series.untimed, "record")} without a time ${fact.series.untimed === 1 ? "is" : "are"} not in it.`
        : "",
    ),
  ];
}

const topicColumns = () => [
  column(
    "Topic",
    (row) => row.name,
    (row) => topicLink(row.name),
  ),
  columnOf.count("Partitions", (row) => row.partitions),
  columnOf.count("Segments", (row) => row.segments),
  columnOf.size("Size", (row) => row.size),
  columnOf.count("Records", (row) => row.records),
  columnOf.size("Last day", (row) => row.growth.lastDayBytes),
  columnOf.time("Newest", (row) => row.newestTimestamp),
  columnOf.list("Codecs", (row) => row.codecs),
  columnOf.number("Ratio", (row) => row.ratio),
  columnOf.text("Policy", policyText),
  columnOf.percent("Dirty", (row) => row.dirtyRatio),
  columnOf.size("Freed now", (row) => row.freedNow),
  columnOf.size("In a week", (row) => row.freedInAWeek),
  column("Findings", (row) => row.damage * 1e6 + row.notices, marks, "number"),
];

const stateWords = (row) => [
  ...(row.state ? [row.state] : row.isInternal ? ["internal"] : []),
  ...(row.damage ? ["damage"] : []),
  ...(row.notices ? ["notice"] : []),
  ...(row.damage || row.notices ? [] : ["no finding"]),
];

const partitionColumns = () => [
  column(
    "Partition",
    (row) => row.name,
    (row) => partitionLink(row),
  ),
  columnOf.text("State", (row) => row.state),
  columnOf.count("Segments", (row) => segmentCount(row)),
  columnOf.count("Start", (row) => row.logStartOffset),
  columnOf.count("End", (row) => row.logEndOffset),
  columnOf.size("Size", (row) => row.size),
  columnOf.size("On disk", (row) => row.diskBytes),
  columnOf.count("Records", (row) => row.records),
  columnOf.time("First", (row) => row.firstTimestamp),
  columnOf.time("Newest", (row) => row.newestTimestamp),
  columnOf.percent("Dirty", (row) => row.cleaning && row.cleaning.dirtyRatio),
  columnOf.text("Disk", (row) => row.disk),
  column("Findings", (row) => row.damage * 1e6 + row.notices, marks, "number"),
];
const segmentCount = (partition) => partition.segments.reduce((sum, each) => sum + each.merged, 0);

const partitionTable = (rows, caption) =>
  table({
    caption,
    csv: "partitions",
    rows,
    columns: partitionColumns(),
    search: (row) => `${row.name} ${row.path}`,
    states: { label: "State", of: stateWords },
  });

function topicBars(topics) {
  const largest = topics
    .slice()
    .sort((a, b) => b.size - a.size)
    .slice(0, MOST_BARS);
  return barList(
    topics.length > MOST_BARS ? `Sizes of the ${MOST_BARS} largest topics` : "Sizes by topic",
    largest.map((each) => ({
      link: topicLink(each.name),
      value: each.size,
      title: plural(each.size, "byte"),
      shown: size(each.size),
    })),
  );
}

function diskPart(disks) {
  if (!disks.length) return null;
  return [
    barList(
      "Segments by disk",
      disks.map((each) => ({
        link: code(each.path),
        value: each.size,
        title: plural(each.size, "byte"),
        shown: size(each.size),
      })),
    ),
    table({
      caption: "Disks",
      csv: "disks",
      rows: disks,
      columns: [
        column(
          "Path",
          (row) => row.path,
          (row) => code(row.path),
        ),
        columnOf.count("Partitions", (row) => row.partitions),
        columnOf.count("Segments", (row) => row.segments),
        columnOf.size("Segments' size", (row) => row.size),
        columnOf.size("All files", (row) => row.diskBytes),
        columnOf.size("Free", (row) => row.freeBytes),
        columnOf.size("Of", (row) => row.totalBytes),
        columnOf.size("Last hour", (row) => row.growth.lastHourBytes),
        columnOf.size("Last day", (row) => row.growth.lastDayBytes),
        column(
          "Full in days",
          (row) => row.fullInDays,
          (row) => shown(row.fullInDays, (days) => (days > 3650 ? "more than 10 years" : fewDigits.format(days))),
          "number",
        ),
        columnOf.text(
          "Broker",
          (row) =>
            row.lockedBy ||
            (row.isStoppedCleanly === null ? null : row.isStoppedCleanly ? "stopped cleanly" : "not stopped cleanly"),
        ),
      ],
    }),
  ];
}

const partitionColumn = column(
  "Partition",
  (row) => `${row.topic}-${row.partition}`,
  (row) => {
    const [found] = partitionsOf(row);
    return found ? partitionLink(found) : raw(`${row.topic}-${row.partition}`);
  },
);

const groupOffsetColumns = (hasTopic = true) => [
  columnOf.text("Group", (row) => row.group),
  ...(hasTopic ? [partitionColumn] : []),
  columnOf.count("Offset", (row) => row.offset),
  columnOf.count("End", (row) => row.endOffset),
  columnOf.count("Lag", (row) => row.lag),
  ...lagColumns(),
  columnOf.time("First unread", (row) => row.firstUnreadTimestamp),
  columnOf.time("Committed", (row) => row.commitTimestamp),
  columnOf.text("Not known, because", (row) => row.whyNotKnown || null),
];

// Of the first record that was not read: how far the partition's newest record is ahead of it, and its age.
const lagColumns = () => [
  columnOf.span("Behind the newest", (row) => row.lagMs),
  columnOf.span("Waits for", (row) => row.ageMs),
];

function groupPart() {
  const { groups, groupOffsets, groupOffsetsNotListed } = facts;
  if (!groups.length) return null;
  const shownGroups = groups.filter((each) => each.commands.length).slice(0, 1);
  const behind = groups.filter((each) => each.ageMs > 0).sort((a, b) => b.ageMs - a.ageMs);
  const lags = behind.slice(0, MOST_BARS).map((each) => ({
    link: raw(each.group),
    value: each.ageMs,
    title: plural(each.lag, "record"),
    shown: shown(each.ageMs, spanText),
  }));
  const notKnown = sum(groups, "notKnown");
  const above = groupOffsets.filter((row) => row.lag < 0).length;
  return [
    lags.length ? barList("How long the first unread record of a group waits", lags) : null,
    table({
      caption: "Consumer groups",
      csv: "groups",
      rows: groups,
      search: (row) => row.group,
      states: { label: "State", of: (row) => [row.state] },
      columns: [
        columnOf.text("Group", (row) => row.group),
        columnOf.text("Type", (row) => row.type),
        columnOf.text("State", (row) => row.state),
        columnOf.text("Protocol", (row) => row.protocolType),
        columnOf.count("Members", (row) => row.members),
        columnOf.count("Offsets", (row) => row.offsets),
        columnOf.count("Lag", (row) => row.lag),
        ...lagColumns(),
        columnOf.count("Not known", (row) => row.notKnown),
      ],
    }),
    hint(
      "The group that waits longest is first. Of the first record that was not read, “behind the newest” is the time to ",
      "the partition's newest record, “waits for” the time to this report, ",
      time(facts.madeMs),
      "; of a group they are the longest of its partitions.",
      notKnown ? ` Of ${plural(notKnown, "offset")} they are not known, and in no figure; the table of offsets says why.` : "",
      above ? ` ${plural(above, "offset")} ${above === 1 ? "is" : "are"} above the end of the log: a consumer is reset there.` : "",
    ),
    groupOffsets.length
      ? table({
          caption: "Offsets of groups, and their lag",
          csv: "group-offsets",
          rows: groupOffsets,
          search: (row) => `${row.group} ${row.topic}-${row.partition}`,
          columns: groupOffsetColumns(),
        })
      : null,
    groupOffsetsNotListed ? hint(`${plural(groupOffsetsNotListed, "offset")} more: not in this report.`) : null,
    shownGroups.map((each) => commands(each.commands)),
  ];
}

const settingColumns = [
  column(
    "Setting",
    (row) => row.name,
    (row) => code(row.name),
  ),
  column(
    "Value",
    (row) => row.value,
    (row) => (known(row.value) ? code(row.value) : "secret"),
  ),
];

const replicaState = (row) =>
  known(row.leader) ? (row.isUnderReplicated ? "not all in sync" : "in sync") : "no leader";

function replicaPart(rows, settings, notListed) {
  return [
    rows.length
      ? table({
          caption: "Replicas",
          csv: "replicas",
          rows,
          search: (row) => `${row.topic}-${row.partition}`,
          states: { label: "State", of: (row) => [replicaState(row)] },
          columns: [
            partitionColumn,
            columnOf.text("Leader", (row) => row.leader),
            columnOf.count("Epoch", (row) => row.leaderEpoch),
            columnOf.list("Brokers", (row) => row.replicas),
            columnOf.list("In sync", (row) => row.inSync),
            columnOf.text("State", replicaState),
          ],
        })
      : null,
    notListed ? hint(`${plural(notListed, "partition")} more: not in this report.`) : null,
    settings.length
      ? table({
          caption: "Settings of topics",
          csv: "topic-settings",
          rows: settings,
          search: (row) => `${row.topic} ${row.name}`,
          columns: [
            columnOf.text("Topic", (row) => row.topic),
            ...settingColumns,
          ],
        })
      : null,
    rows.length ? hint("By the cluster's metadata on this disk, as of its last record.") : null,
  ];
}

function openTransactions(list) {
  if (!list.length) return null;
  return [
    table({
      caption: "Open transactions",
      csv: "open-transactions",
      rows: list,
      states: { label: "State", of: (row) => [row.hanging ? "hanging" : "open"] },
      columns: [
        columnOf.text("Transactional id", (row) => row.transactionalId),
        partitionColumn,
        columnOf.text("Producer id", (row) => row.producerId),
        columnOf.count("Epoch", (row) => row.producerEpoch),
        columnOf.count("Start offset", (row) => row.startOffset),
        columnOf.time("Last record", (row) => row.lastTimestamp),
        columnOf.span("Age", (row) => row.ageMs),
        column(
          "State",
          (row) => (row.hanging ? "hanging" : "open"),
          (row) => (row.hanging ? badge("notice", "hanging") : "open"),
        ),
      ],
    }),
    list
      .filter((each) => each.commands.length)
      .slice(0, 5)
      .map((each) => commands(each.commands)),
  ];
}

function transactionPart() {
  if (!facts.transactions.length && !facts.openTransactions.length) return null;
  return [
    openTransactions(facts.openTransactions),
    facts.transactions.length
      ? table({
          caption: "Transactional ids",
          csv: "transactions",
          rows: facts.transactions,
          search: (row) => row.transactionalId,
          states: { label: "State", of: (row) => [row.state] },
          columns: [
            columnOf.text("Transactional id", (row) => row.transactionalId),
            columnOf.text("State", (row) => row.state),
            columnOf.text("Producer id", (row) => row.producerId),
            columnOf.count("Epoch", (row) => row.producerEpoch),
            columnOf.span("Timeout", (row) => row.timeoutMs),
            columnOf.time("Started", (row) => row.startTime),
            columnOf.time("Updated", (row) => row.lastUpdateTime),
            columnOf.list("Partitions", (row) => row.partitions),
          ],
        })
      : null,
  ];
}

function scopePart() {
  const { scope } = facts;
  const sentences = (title, list) =>
    list.length
      ? [
          h("h3", null, title),
          h(
            "ul",
            null,
            list.map((each) => h("li", null, raw(each))),
          ),
        ]
      : null;
  return [
    tiles(
      tile("Mode", scope.mode),
      tile("Batch headers read", count(scope.headers)),
      tile("Records decoded", count(scope.recordsDecoded), "of ", size(scope.bytesDecoded)),
      tile("Partitions sampled", count(scope.partitionsSampled), "of ", count(scope.partitions)),
      tile(
        "Segments",
        count(scope.segments),
        `${countText(scope.segmentsReadWhole)} read whole, ${countText(scope.segmentsWithAllHeaders)} with all headers, ${countText(scope.segmentsWithSomeHeaders)} with some`,
      ),
      known(scope.sinceMs) ? tile("Since", time(scope.sinceMs)) : null,
      known(scope.untilMs) ? tile("Until", time(scope.untilMs)) : null,
    ),
    sentences("Checked", scope.checked),
    sentences("Not checked", scope.notChecked),
    sentences("Notes", scope.notes),
    h("h3", null, "This report"),
    hint(`pylogseg ${facts.pylogseg} made it in ${spanText(facts.tookMs)}. Again:`),
    commands([{ what: "show", text: facts.command, note: "" }]),
  ];
}

// Of what is known; null if nothing is.
function sum(rows, name) {
  const values = rows.map((row) => row[name]).filter(known);
  return values.length ? values.reduce((total, each) => total + each, 0) : null;
}

function overview() {
  const { scope } = facts;
  const unknownFreed = facts.topics.filter((each) => !known(each.freedNow)).length;
  const level = facts.damage ? "damage" : facts.notices ? "notice" : "fine";
  return [
    h(
      "div.title",
      null,
      h("h1", { tabindex: -1 }, "What is on this disk"),
      h(
        "p.paths",
        null,
        facts.paths.map((each) => [code(each), " "]),
      ),
      h("p.paths", null, "as of ", time(facts.madeMs), " UTC"),
    ),
    h(
      `p.verdict.${level}`,
      null,
      h("span.sign", { "aria-hidden": "true" }, level === "fine" ? "✓" : SIGNS[level][0]),
      h("span", null, raw(facts.verdict)),
    ),
    tiles(
      tile("Size", size(scope.size)),
      tile("Topics", count(facts.topics.length)),
      tile("Partitions", count(scope.partitions)),
      tile("Segments", count(scope.segments)),
      tile(
        "Could be freed",
        size(sum(facts.topics, "freedNow")),
        "in a week ",
        size(sum(facts.topics, "freedInAWeek")),
        unknownFreed
          ? `; of ${plural(unknownFreed, "topic")} it is not known: not in it`
          : null,
      ),
      tile("Damage", count(facts.damage)),
      tile("Notices", count(facts.notices)),
      facts.advice ? tile("Advice", count(facts.advice)) : null,
    ),
    scope.aggregated ? h("p.callout", null, raw(scope.aggregated)) : null,
    section("findings", "Findings", findings(facts.findings, facts.findingsNotListed)),
    section("since", facts.since ? `Since ${timeText(1000 * Math.floor(facts.since.madeMs / 1000))}` : "", sincePart(facts.since)),
    section("growth", "Growth", growthPart(facts, "Written by time")),
    section(
      "topics",
      "Topics",
      facts.topics.length
        ? [
            topicBars(facts.topics),
            table({
              caption: "Topics",
              csv: "topics",
              rows: facts.topics,
              columns: topicColumns(),
              sort: [3, "desc"],
              search: (row) => row.name,
              states: { label: "State", of: stateWords },
            }),
          ]
        : null,
    ),
    section("disks", "Disks", diskPart(facts.disks)),
    section(
      "partitions",
      "Partitions",
      facts.partitions.length
        ? [
            partitionTable(facts.partitions, "Partitions"),
            facts.partitionsNotListed
              ? hint(
                  `${plural(facts.partitionsNotListed, "partition")} more: on the disk, not in this report one by one. The search finds their names.`,
                )
              : null,
          ]
        : null,
    ),
    section("replicas", "Replicas and settings", replicaPart(facts.replicas, facts.topicSettings, facts.replicasNotListed)),
    section("groups", "Consumer groups", groupPart()),
    section("transactions", "Transactions", transactionPart()),
    section("scope", "What was looked at", scopePart()),
  ];
}

// What is on the disk, and not in this report; a name that a shell would not take as it is stays NAME.
function otherCommand(name) {
  const text = /^[\w.-]+$/.test(name) ? facts.commandOfOthers.replace(/ NAME -o /, ` ${name} -o `) : facts.commandOfOthers;
  return commands([{ what: "show", text, note: "" }]);
}

const notHere = (name) => [
  h("h1", { tabindex: -1 }, raw(name)),
  h("p.callout", null, "On the disk, not in this report. One of its own:"),
  otherCommand(name),
];

const notListed = (topic, names) => [
  hint(
    `${plural(names.length, "partition")} more: on the disk, not in this report: `,
    names.slice(0, MOST_OTHERS).map((name, at) => [at ? ", " : "", h("a", { href: `#${encodeURIComponent(name)}` }, raw(name))]),
    names.length > MOST_OTHERS ? ", …" : "",
  ),
  otherCommand(topic),
];

function topicPage(name) {
  const topic = facts.topics.find((each) => each.name === name);
  const partitions = facts.partitions.filter((each) => each.topic === name);
  if (!topic && !partitions.length) return othersOf.has(name) ? [notHere(name)] : null;
  const others = othersOf.get(name) || [];
  const offsets = facts.groupOffsets.filter((each) => each.topic === name);
  return [
    h("div.title", null, h("p.kind", null, "Topic"), h("h1", { tabindex: -1 }, raw(name))),
    topic
      ? tiles(
          tile("Size", size(topic.size), "on disk ", size(topic.diskBytes)),
          tile("Partitions", count(topic.partitions)),
          tile("Segments", count(topic.segments)),
          tile("Records", count(topic.records)),
          tile("Batches", count(topic.batches)),
          tile("Times", time(topic.firstTimestamp), "to ", time(topic.newestTimestamp)),
          tile(
            "Codecs",
            topic.codecs.join(", ") || dash(),
            topic.ratio ? `ratio ${fewDigits.format(topic.ratio)}` : null,
          ),
          tile("Policy", policyText(topic)),
          tile("Freed now", size(topic.freedNow), "in a week ", size(topic.freedInAWeek)),
          tile("Findings", marks(topic)),
        )
      : hint("Only folders of it that are not live are here."),
    section(
      "findings",
      "Findings",
      findings(
        facts.findings.filter((each) => each.topic === name),
        0,
      ),
    ),
    topic ? section("growth", "Growth", growthPart(topic, "Written by time")) : null,
    section("partitions", "Partitions", [
      partitions.length
        ? barList(
            "Sizes by partition",
            partitions
              .slice()
              .sort((a, b) => b.size - a.size)
              .slice(0, MOST_BARS)
              .map((each) => ({
                link: partitionLink(each),
                value: each.size,
                title: plural(each.size, "byte"),
                shown: size(each.size),
              })),
          )
        : null,
      partitions.length ? partitionTable(partitions, "Partitions of the topic") : null,
      others.length ? notListed(name, others) : null,
    ]),
    section(
      "replicas",
      "Replicas and settings",
      replicaPart(
        facts.replicas.filter((each) => each.topic === name),
        facts.topicSettings.filter((each) => each.topic === name),
        0,
      ),
    ),
    section(
      "groups",
      "Consumer groups",
      offsets.length
        ? table({
            caption: "Offsets of groups, and their lag",
            csv: `groups ${name}`,
            rows: offsets,
            search: (row) => `${row.group} ${row.partition}`,
            columns: groupOffsetColumns(),
          })
        : null,
    ),
    section(
      "transactions",
      "Open transactions",
      openTransactions(facts.openTransactions.filter((each) => each.topic === name)),
    ),
  ];
}
