// ---- one partition ----

const sizeRows = (sample) => [
  ["record", sample.recordBytes],
  ["key", sample.keyBytes],
  ["value", sample.valueBytes],
];

function recordPart(sample) {
  if (!sample) return null;
  return [
    hint(
      sample.isAll
        ? `All ${plural(sample.records, "record")} were decoded.`
        : `A sample: ${plural(sample.records, "record")} were decoded.`,
    ),
    tiles(
      tile("Records", count(sample.records), sample.isAll ? "all" : "sampled"),
      tile("Tombstones", count(sample.tombstones)),
      tile("Without a key", count(sample.nullKeys)),
      tile("Headers", count(sample.headers)),
    ),
    boxChart("Sizes of records, keys and values", sizeRows(sample), () =>
      table({
        caption: "Sizes",
        quiet: true,
        csv: "sizes",
        rows: sizeRows(sample),
        columns: [
          columnOf.text("Bytes of", ([name]) => name),
          columnOf.count("Count", ([, each]) => each.count),
          columnOf.size("Total", ([, each]) => each.total),
          columnOf.count("Least", ([, each]) => each.min),
          columnOf.number("Mean", ([, each]) => each.mean),
          columnOf.count("Median", ([, each]) => each.p50),
          columnOf.count("90 %", ([, each]) => each.p90),
          columnOf.count("99 %", ([, each]) => each.p99),
          columnOf.count("Largest", ([, each]) => each.max),
        ],
      }),
    ),
    sample.codecs.length
      ? [
          barList(
            "Compression ratio by codec",
            sample.codecs
              .filter((each) => each.ratio)
              .map((each) => ({
                link: each.name,
                value: each.ratio,
                title: `${plural(each.storedBytes, "byte")} stored`,
                shown: number(each.ratio),
              })),
          ),
          table({
            caption: "Codecs",
            csv: "codecs",
            rows: sample.codecs,
            columns: [
              columnOf.text("Codec", (row) => row.name),
              columnOf.count("Batches", (row) => row.batches),
              columnOf.count("Records", (row) => row.records),
              columnOf.size("Stored", (row) => row.storedBytes),
              columnOf.size("Decompressed", (row) => row.rawBytes),
              columnOf.number("Ratio", (row) => row.ratio),
            ],
          }),
        ]
      : null,
  ];
}

function keyPart(partition) {
  const { sample } = partition;
  if (!sample || !(sample.keysByRecords.length || sample.keysByBytes.length || sample.largest.length)) return null;
  const columns = [
    column(
      "Key",
      (row) => row.key,
      (row) => (known(row.key) ? code(row.key) : dash()),
    ),
    columnOf.size("Key size", (row) => row.keyBytes),
    columnOf.count("Records", (row) => row.records),
    columnOf.size("Bytes", (row) => row.bytes),
    columnOf.count("At offset", (row) => row.offset),
    column(
      "Segment",
      (row) => (partition.segments.length > 1 ? fileName(row.path) : null),
      (row) => code(fileName(row.path)),
    ),
  ];
  const keys = (caption, rows) =>
    rows.length
      ? table({
          caption,
          csv: `${caption} ${partition.name}`,
          rows,
          most: 10,
          columns: columns.filter((each) => rows.some((row) => known(each.value(row)))),
        })
      : null;
  const hidden = [...sample.keysByRecords, ...sample.keysByBytes, ...sample.largest].every((each) => !known(each.key));
  return [
    tiles(tile("Different keys", count(sample.distinctKeys), sample.distinctKeysExact ? "exact" : "estimated")),
    h(
      "div.columns",
      null,
      keys("Keys with the most records", sample.keysByRecords),
      keys("Keys with the most bytes", sample.keysByBytes),
      keys("Largest records", sample.largest),
    ),
    hidden ? hint("Keys are in a report only if it is made with --sample.") : null,
    sample.weightsMissed ? hint(`Counts are at most ${plural(sample.weightsMissed, "record")} too low.`) : null,
  ];
}

const payload = (text, isDecoded) =>
  known(text)
    ? [code(text), isDecoded ? h("small", { title: "decoded by its schema" }, " decoded") : null]
    : h("span.none", null, "null");

function payloadPart(partition) {
  const rows = partition.sample ? partition.sample.payloads : [];
  if (!rows.length) return null;
  return table({
    caption: "Sampled records",
    csv: `records ${partition.name}`,
    rows,
    columns: [
      columnOf.count("Offset", (row) => row.offset),
      columnOf.time("Time", (row) => row.timestampMs),
      column(
        "Key",
        (row) => row.key,
        (row) => payload(row.key, row.keyIsDecoded),
      ),
      column(
        "Value",
        (row) => row.value,
        (row) => payload(row.value, row.valueIsDecoded),
      ),
      ...(rows.some((row) => row.whyNotDecoded) ? [columnOf.text("Not decoded", (row) => row.whyNotDecoded || null)] : []),
      columnOf.size("Key size", (row) => row.keyBytes),
      columnOf.size("Value size", (row) => row.valueBytes),
      column(
        "Headers",
        (row) => row.headers.map(([name, value]) => `${name}: ${value}`).join("; "),
        (row) =>
          row.headers.map(([name, value]) =>
            h("span.header", null, code(name), ": ", known(value) ? code(value) : "null"),
          ),
      ),
    ],
  });
}

const REASONS = {
  markers: "control records: consumers skip them",
  "log start": "below the log start offset: retention or delete requests",
  compaction: "removed by the cleaner",
  damage: "in batches that cannot be read",
  "not explained": "between batches, for no reason that the files tell",
};

function missingPart(partition) {
  const { missing } = partition;
  if (!missing) return null;
  const rows = [
    ["markers", missing.markers],
    ["log start", missing.belowLogStart],
    ["compaction", missing.compaction],
    ["damage", missing.damage],
    ["not explained", missing.notExplained],
  ];
  if (!rows.some(([, value]) => value) && !missing.ranges.length) return null;
  const ranges = () =>
    table({
      caption: "Ranges of missing offsets",
      quiet: true,
      csv: `missing ${partition.name}`,
      rows: missing.ranges,
      columns: [
        columnOf.count("First", (row) => row.first),
        columnOf.count("Last", (row) => row.last),
        columnOf.count("Count", (row) => row.count),
        columnOf.text("Reason", (row) => row.reason),
      ],
    });
  const end = partition.logEndOffset || Math.max(1, ...missing.ranges.map((each) => each.last + 1));
  const kind = (reason) => `gap-${reason.replace(" ", "-")}`;
  const parts = missing.ranges.map((each) => ({
    start: each.first,
    end: each.last + 1,
    kind: kind(each.reason),
    label: each.reason,
    more: [plural(each.count, "offset"), REASONS[each.reason] || ""].filter(Boolean),
  }));
  const listed = Math.max(0, ...parts.map((each) => each.end));
  if (missing.rangesNotListed && listed < end) {
    parts.push({ start: listed, end, kind: "gap-not-listed", label: "not in this report", more: [] });
  }
  return [
    missing.ranges.length
      ? strip({
          title: "Offsets, and what is missing",
          from: Math.min(0, ...missing.ranges.map((each) => each.first)),
          to: end,
          unit: "offsets",
          text: countText,
          table: ranges,
          parts,
          legend: [["track", "there"], ...new Map(parts.map((each) => [each.kind, each.label]))],
        })
      : null,
    table({
      caption: "Missing offsets by reason",
      csv: `missing by reason ${partition.name}`,
      rows,
      columns: [
        columnOf.text("Reason", ([name]) => name),
        columnOf.count("Offsets", ([, value]) => value),
        column("Why", ([name]) => REASONS[name]),
      ],
    }),
    missing.rangesNotListed ? hint(`${plural(missing.rangesNotListed, "range")} more: not in this report.`) : null,
    missing.isAll ? null : hint("Not every batch header was read: a missing offset may be overlooked."),
  ];
}

function producerPart(partition) {
  const { producers, transactions } = partition;
  const has =
    producers.length || transactions.transactionalBatches || transactions.aborted.length || transactions.open.length;
  if (!has) return null;
  return [
    tiles(
      tile("Producers", count(producers.length + partition.producersNotListed)),
      tile("Transactional batches", count(transactions.transactionalBatches)),
      tile("Control batches", count(partition.controlBatches)),
      tile("Commits", count(transactions.commits)),
      tile("Aborts", count(transactions.aborts)),
      tile("Open", count(transactions.open.length)),
    ),
    openTransactions(transactions.open),
    producers.length
      ? table({
          caption: "Producers",
          csv: `producers ${partition.name}`,
          rows: producers,
          most: 20,
          columns: [
            columnOf.text("Producer id", (row) => row.producerId),
            columnOf.count("Epoch", (row) => row.producerEpoch),
            columnOf.count("Last sequence", (row) => row.lastSequence),
            columnOf.time("Last record", (row) => row.lastTimestamp),
            columnOf.count("Open since offset", (row) => row.openSinceOffset),
            columnOf.text("Transactional id", (row) => row.transactionalId),
          ],
        })
      : null,
    partition.producersNotListed
      ? hint(`${plural(partition.producersNotListed, "producer")} more: not in this report.`)
      : null,
    transactions.aborted.length
      ? table({
          caption: "Aborted transactions",
          csv: `aborted ${partition.name}`,
          rows: transactions.aborted,
          most: 20,
          columns: [
            columnOf.text("Producer id", (row) => row.producerId),
            columnOf.count("First offset", (row) => row.firstOffset),
            columnOf.count("Last offset", (row) => row.lastOffset),
          ],
        })
      : null,
    transactions.abortedNotListed
      ? hint(`${plural(transactions.abortedNotListed, "aborted transaction")} more: not in this report.`)
      : null,
  ];
}

function epochPart(partition) {
  const epochs = partition.leaderEpochs;
  if (!epochs.length) return null;
  const end = Math.max(partition.logEndOffset || 0, epochs[epochs.length - 1].startOffset + 1);
  const rows = epochs.map((each, index) => ({
    ...each,
    end: index + 1 < epochs.length ? epochs[index + 1].startOffset : end,
  }));
  return strip({
    title: "Leader epochs by offset",
    from: rows[0].startOffset,
    to: end,
    unit: "offsets",
    text: countText,
    parts: rows.map((each, index) => ({
      start: each.startOffset,
      end: each.end,
      kind: index % 2 ? "odd" : "even",
      label: `epoch ${each.epoch}`,
      more: [],
    })),
    table: () =>
      table({
        caption: "Leader epochs",
        quiet: true,
        csv: `epochs ${partition.name}`,
        rows,
        columns: [
          columnOf.count("Epoch", (row) => row.epoch),
          columnOf.count("First offset", (row) => row.startOffset),
          columnOf.count("Offsets", (row) => row.end - row.startOffset),
        ],
      }),
  });
}

function cleaningPart(partition) {
  const { cleaning } = partition;
  if (!cleaning) return null;
  const freed = [
    ["Retention", "now", cleaning.retentionNow],
    ["Retention", "in a week", cleaning.retentionInAWeek],
    ["Compaction", "now", cleaning.compactionNow],
    ["Compaction", "in a week", cleaning.compactionInAWeek],
  ];
  return [
    tiles(
      tile("Policy", policyText(cleaning)),
      tile("Dirty ratio", percent(cleaning.dirtyRatio)),
      tile("Cleaned to offset", count(cleaning.cleanedTo)),
      tile("Size in a week", size(cleaning.sizeInAWeek), "at this rate"),
    ),
    known(cleaning.dirtyBytes) && cleaning.cleanBytes + cleaning.dirtyBytes
      ? strip({
          title: "Clean and dirty bytes",
          from: 0,
          to: cleaning.cleanBytes + cleaning.dirtyBytes,
          unit: "bytes",
          text: axisSize,
          legend: [
            ["clean", "clean"],
            ["dirty", "dirty: not compacted yet"],
          ],
          parts: [
            { start: 0, end: cleaning.cleanBytes, kind: "clean", label: "clean" },
            {
              start: cleaning.cleanBytes,
              end: cleaning.cleanBytes + cleaning.dirtyBytes,
              kind: "dirty",
              label: "dirty",
            },
          ].filter((each) => each.end > each.start),
          table: () =>
            table({
              caption: "Clean and dirty bytes",
              quiet: true,
              csv: `dirty ${partition.name}`,
              rows: [
                ["clean", cleaning.cleanBytes],
                ["dirty", cleaning.dirtyBytes],
              ],
              columns: [columnOf.text("Part", ([name]) => name), columnOf.size("Bytes", ([, value]) => value)],
            }),
        })
      : null,
    table({
      caption: "What would be freed",
      csv: `freed ${partition.name}`,
      rows: freed,
      columns: [
        columnOf.text("By", ([by]) => by),
        columnOf.text("When", ([, when]) => when),
        columnOf.count("Segments", ([, , each]) => each.segments),
        column(
          "Bytes",
          ([, , each]) => each.bytes,
          ([, , each]) => [
            about(each.isEstimate && known(each.bytes)),
            size(each.bytes),
            each.isAssumed && known(each.bytes) ? " if so" : "",
          ],
          "number",
        ),
        columnOf.text("How this is known", ([, , each]) => each.why),
      ],
    }),
    table({
      caption: "Settings",
      csv: `settings ${partition.name}`,
      rows: cleaning.settings,
      columns: [...settingColumns, columnOf.text("Set by", (row) => row.source)],
    }),
    hint(raw(cleaning.settingsSource)),
    commands(cleaning.commands),
  ];
}

function partitionPage(partition) {
  const found = facts.findings.filter(
    (each) =>
      partitionsOf(each).includes(partition) &&
      (each.path.startsWith(partition.path) || partitionsOf(each).length === 1),
  );
  const timed = partition.segments.filter((each) => known(each.firstTimestamp));
  const extent = extentOf(
    partition.series,
    ...timed.map((each) => ({
      starts: [each.firstTimestamp],
      stepMs: Math.max(1, (each.largestTimestamp || 0) - each.firstTimestamp),
    })),
  );
  const zoom = extent ? makeZoom(extent) : null;
  const far = extent ? farText(extent, usual(partition.series, extent)) : "";
  if (zoom) zoom.range = usual(partition.series, extent);
  const offsets = facts.groupOffsets.filter(
    (each) => each.topic === partition.topic && each.partition === partition.partition,
  );
  const estimate = about(partition.read === "some");
  // What may not be read is no damage.
  const errorLevel = found.some((each) => each.level === "damage") ? "damage" : "notice";
  return [
    h(
      "div.title",
      null,
      h("p.kind", null, "Partition", known(partition.topic) ? [" of ", topicLink(partition.topic)] : null),
      h("h1", { tabindex: -1 }, raw(partition.name)),
      h("p.paths", null, code(partition.path)),
    ),
    partition.error
      ? h(
          `p.verdict.${errorLevel}`,
          null,
          h("span.sign", { "aria-hidden": "true" }, SIGNS[errorLevel][0]),
          h("span", null, raw(partition.error)),
        )
      : null,
    tiles(
      tile("State", partition.state),
      tile("Size", size(partition.size), "on disk ", size(partition.diskBytes)),
      tile(
        "Records",
        [estimate, count(partition.records)],
        known(partition.batches) ? ["in ", plural(partition.batches, "batch", "batches")] : null,
      ),
      tile("Offsets", count(partition.logStartOffset), "to ", count(partition.logEndOffset)),
      tile("Segments", count(segmentCount(partition))),
      tile("Times", time(partition.firstTimestamp), "to ", time(partition.newestTimestamp)),
      tile(
        "Codecs",
        partition.codecs.join(", ") || dash(),
        partition.magics.length ? `magic ${partition.magics.join(", ")}` : null,
      ),
      tile("Findings", marks(partition)),
    ),
    section("findings", "Findings", findings(found, 0)),
    section("damage", "Damage map", damageMaps(partition, found)),
    zoom ? [zoomBar(zoom), far ? hint(far) : null] : null,
    section("segments", "Segments", segmentPart(partition, zoom)),
    section(
      "time",
      "By time",
      zoom && partition.series.starts.length
        ? [
            timeChart("Written by time", { all: partition.series }, zoom),
            tiles(growthTiles(partition.growth)),
            partition.series.isEstimate ? hint("Estimated: not every batch header was read.") : null,
            partition.series.untimed ? hint(`${plural(partition.series.untimed, "record")} without a time.`) : null,
          ]
        : null,
    ),
    section("records", "Records", recordPart(partition.sample)),
    section("keys", "Keys", keyPart(partition)),
    section("payloads", "Sampled records", payloadPart(partition)),
    section("missing", "Missing offsets", missingPart(partition)),
    section("cleaning", "Retention and compaction", cleaningPart(partition)),
    section("producers", "Producers and transactions", producerPart(partition)),
    section("epochs", "Leader epochs", epochPart(partition)),
    section(
      "groups",
      "Consumer groups",
      offsets.length
        ? table({
            caption: "Offsets of groups, and their lag",
            csv: `groups ${partition.name}`,
            rows: offsets,
            columns: groupOffsetColumns(false),
          })
        : null,
    ),
    section("more", "More", commands(partition.commands)),
  ];
}
