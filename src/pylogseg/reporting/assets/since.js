// ---- what changed since an earlier report ----

const CHANGES = {
  cut: "the end moved back",
  gone: "gone",
  recreated: "another topic of the name",
  new: "new",
  moved: "moved",
  stuck: "behind, and read nothing",
  behind: "further behind",
  "caught up": "caught up",
  same: "as it was",
};

const changeColumn = columnOf.text("What", (row) => CHANGES[row.what] || row.what);
const changeStates = { label: "What", of: (row) => [row.what] };

// Two columns, of the earlier report and of this one.
const twice = (kind, title, name) => [
  columnOf[kind](`${title} before`, (row) => row[`${name}Before`]),
  columnOf[kind](`${title} now`, (row) => row[`${name}After`]),
];
const brokers = (list) => list.join(" ");

function changeTable(caption, csv, rows, columns, search) {
  return rows.length ? table({ caption, csv: `since ${csv}`, rows, columns, search, states: rows[0].what ? changeStates : null }) : null;
}

const offsetName = (row) => `${row.topic}-${row.partition}`;

function sinceTables(since) {
  return [
    changeTable("Partitions that changed", "partitions", since.partitions, [
      changeColumn,
      column("Partition", (row) => row.name, (row) => (partitionsOf(row)[0] ? partitionLink(partitionsOf(row)[0]) : raw(row.name))),
      ...twice("count", "Start", "start"),
      ...twice("count", "End", "end"),
      columnOf.number("Records a day", (row) => row.recordsPerDay),
      ...twice("size", "Size", "size"),
      columnOf.size("Size a day", (row) => (known(row.bytesPerDay) ? Math.round(row.bytesPerDay) : null)),
    ], (row) => row.name),
    changeTable("Findings that are new or gone", "findings", since.findings, [
      changeColumn,
      columnOf.text("Level", (row) => row.level),
      columnOf.text("Kind", (row) => row.kind),
      column("File", (row) => row.path, (row) => code(row.path)),
      columnOf.text("Reason", (row) => row.reason),
    ], (row) => `${row.path} ${row.kind} ${row.reason}`),
    changeTable("Groups then and now", "groups", since.groups, [
      changeColumn,
      columnOf.text("Group", (row) => row.group),
      ...twice("count", "Lag", "lag"),
      ...twice("span", "Behind the newest", "lagMs"),
      ...twice("span", "Waits for", "ageMs"),
      columnOf.count("Offsets read on", (row) => row.read),
    ], (row) => row.group),
    changeTable("Settings that changed", "settings", since.settings, [
      columnOf.text("Topic", (row) => row.topic),
      column("Setting", (row) => row.name, (row) => code(row.name)),
      columnOf.text("Before", (row) => row.before),
      columnOf.text("Now", (row) => row.after),
    ], (row) => `${row.topic} ${row.name}`),
    changeTable("Replicas that changed", "replicas", since.replicas, [
      partitionColumn,
      ...twice("text", "Leader", "leader"),
      columnOf.text("Brokers before", (row) => brokers(row.replicasBefore)),
      columnOf.text("Brokers now", (row) => brokers(row.replicasAfter)),
      columnOf.text("In sync before", (row) => brokers(row.inSyncBefore)),
      columnOf.text("In sync now", (row) => brokers(row.inSyncAfter)),
    ], offsetName),
  ];
}

function sincePart(since) {
  if (!since) return null;
  const counted = (rows, what) => rows.filter((row) => row.what === what).length;
  return [
    tiles(
      tile("Since", time(since.madeMs), spanText(since.spanMs)),
      tile("Size", size(since.sizeAfter), "before ", size(since.sizeBefore)),
      tile("Partitions that changed", count(since.partitions.length), `${countText(since.partitionsSame)} as they were`),
      tile(
        "New findings",
        count(counted(since.findings, "new")),
        `${countText(counted(since.findings, "gone"))} gone, ${countText(since.findingsSame)} the same`,
      ),
      tile("Groups that read nothing", count(counted(since.groups, "stuck"))),
    ),
    since.notes.map((note) => hint(raw(note))),
    sinceTables(since),
    since.notListed ? hint(`${plural(since.notListed, "change")} more: not in this report.`) : null,
    hint("Compared with ", code(since.source), ". Its own verdict: ", raw(since.verdict), " What was deleted counts against the size a day."),
  ];
}
