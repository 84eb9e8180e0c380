// ---- the segments of a partition: a chart by time, offsets or bytes, and their table ----

const CODECS = ["none", "gzip", "snappy", "lz4", "zstd"];
const LEFTOVER = new Set(["deleted", "cleaned", "swap"]);

function codecOf({ codecs, size }) {
  if (codecs.length > 1) return "mixed";
  if (CODECS.includes(codecs[0])) return codecs[0];
  return size ? "unknown" : "empty";
}

const kindOf = (segment) =>
  `codec-${codecOf(segment)}${segment.state === "active" ? ".active" : LEFTOVER.has(segment.state) ? ".leftover" : ""}`;

function segmentTip(each) {
  const line = (label, value) => (known(value) ? h("span", null, `${label}: ${value}`) : null);
  return [
    h("b", null, raw(each.name)),
    line("state", each.damage ? `${each.state}, ${each.damage} damage` : each.state),
    line("size", plural(each.size, "byte")),
    line("offsets", `${countText(each.baseOffset)} to ${known(each.nextOffset) ? countText(each.nextOffset) : "?"}`),
    line("codec", each.codecs.join(", ") || null),
    known(each.firstTimestamp)
      ? line("times", `${timeText(each.firstTimestamp)} to ${timeText(each.largestTimestamp)}`)
      : null,
    line("records", known(each.records) ? countText(each.records) : null),
  ].filter(Boolean);
}

// Segments as bars from their first to their last time, offset or byte; those that overlap stand in lanes.
function segmentChart(segments, zoom) {
  const ways = [
    ["time", "Time"],
    ["offset", "Offset"],
    ["bytes", "Bytes"],
  ].filter(([way]) => way !== "time" || zoom);
  let way = ways[0][0];
  function spans() {
    let sum = 0;
    return segments
      .map((each) => {
        if (way === "time")
          return [
            each,
            each.firstTimestamp,
            known(each.largestTimestamp) ? Math.max(each.largestTimestamp, each.firstTimestamp) : each.firstTimestamp,
          ];
        if (way === "offset")
          return [each, each.baseOffset, known(each.nextOffset) ? each.nextOffset : each.baseOffset + 1];
        const from = sum;
        return [each, from, (sum += each.size)];
      })
      .filter(([, from]) => known(from));
  }
  function make(width) {
    const all = spans(),
      right = width - RIGHT,
      left = 8;
    const [from, to] =
      way === "time"
        ? zoom.range
        : [Math.min(...all.map((each) => each[1])), Math.max(1, ...all.map((each) => each[2]))];
    const x = scale(from, to, left, right),
      ends = [],
      marks = [];
    for (const [segment, first, last] of all.sort((a, b) => a[1] - b[1])) {
      if (last < from || first > to) continue;
      const start = Math.max(left, x(first)),
        wide = Math.max(5, Math.min(right, x(last)) - start - 1);
      let lane = ends.findIndex((end) => end <= start);
      if (lane < 0) lane = ends.length < 8 ? ends.length : ends.indexOf(Math.min(...ends));
      ends[lane] = start + wide;
      marks.push({
        segment,
        x: Math.min(start, right - wide),
        width: wide,
        y: 10 + lane * 26,
        height: 20,
        tip: () => segmentTip(segment),
      });
    }
    const base = 14 + Math.max(1, ends.length) * 26;
    const ticks =
      way === "time"
        ? timeTicks(from, to, (right - left) / 75)
        : niceTicks(from, to, width / 110).map((tick) => [tick, way === "bytes" ? axisSize(tick) : countText(tick)]);
    return {
      marks,
      at: way === "time" ? x : null,
      svg: canvas(
        width,
        base + AXIS,
        hatch(),
        h("line.base", { x1: left, x2: right, y1: base, y2: base }),
        marks.map((mark) => [
          h(`rect.segment.${kindOf(mark.segment)}`, {
            x: mark.x,
            y: mark.y,
            width: mark.width,
            height: mark.height,
            rx: Math.min(3, mark.width / 3),
          }),
          mark.segment.damage || mark.segment.error
            ? [
                h("rect.part.damage", { x: mark.x, y: mark.y + 12, width: mark.width, height: 8 }),
                h("path.flag", { d: `M${mark.x + mark.width / 2} ${mark.y - 2}l-4.5 -7h9z` }),
              ]
            : null,
        ]),
        marks.length
          ? null
          : h("text.nothing", { x: width / 2, y: 26, "text-anchor": "middle" }, "No segment in this range."),
        horizontal(ticks, x, base, width),
      ),
    };
  }
  const kinds = [...new Set(segments.map(codecOf))];
  const states = new Set(segments.map((each) => each.state));
  const made = figure({
    title: "Segments, coloured by codec",
    label: `${plural(segments.length, "segment")} as bars`,
    zoom,
    make,
    controls: choice("Along", ways, way, (value) => {
      way = value;
      made.redraw();
    }),
    legend: [
      ...kinds.map((kind) => [`codec-${kind}`, kind]),
      ...(states.has("active") ? [["active", "active segment"]] : []),
      ...([...LEFTOVER].some((each) => states.has(each)) ? [["leftover", "left over, waits for its removal"]] : []),
      ...(segments.some((each) => each.damage) ? [["damage", "damage"]] : []),
    ],
  });
  return made;
}

function segmentPart(partition, zoom) {
  const { segments } = partition;
  if (!segments.length) return null;
  const list = table({
    caption: "Segments",
    csv: `segments ${partition.name}`,
    rows: segments,
    search: (row) => row.name,
    states: { label: "State", of: (row) => [row.state, ...(row.damage ? ["damage"] : [])] },
    keep: (row) => !zoom || zoom.has(row.firstTimestamp, row.largestTimestamp),
    columns: [
      column(
        "Segment",
        (row) => row.name,
        (row) => code(row.name),
      ),
      column(
        "State",
        (row) => row.state,
        (row) => [
          row.state,
          row.isGone ? ", gone since" : "",
          row.damage ? [" ", badge("damage", `${countText(row.damage)} damage`)] : null,
          row.error ? h("span.error", null, raw(row.error)) : null,
        ],
      ),
      columnOf.count("Base offset", (row) => row.baseOffset),
      columnOf.count("End offset", (row) => row.nextOffset),
      columnOf.size("Size", (row) => row.size),
      columnOf.count("Records", (row) => row.records),
      columnOf.count("Batches", (row) => row.batches),
      columnOf.time("First time", (row) => row.firstTimestamp),
      columnOf.time("Largest time", (row) => row.largestTimestamp),
      columnOf.list("Codecs", (row) => row.codecs),
      columnOf.list("Beside it", (row) => row.companions),
      columnOf.text("Read", (row) => row.read),
      columnOf.time("Modified", (row) => row.modifiedMs),
    ],
  });
  if (zoom) zoom.listeners.push(list.refresh);
  return [
    segmentChart(segments, zoom),
    list,
    partition.segmentsNotListed
      ? hint(`${plural(partition.segmentsNotListed, "segment")} of the oldest are merged into rows of neighbours.`)
      : null,
  ];
}
