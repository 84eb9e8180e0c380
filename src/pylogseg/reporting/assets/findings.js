// ---- findings: what is wrong, where, and the command that shows or mends it ----

const SIGNS = { damage: ["✕", "Damage"], notice: ["!", "Notice"], advice: ["i", "Advice"] };
const URGENCIES = {
  start: "the broker does not start, or not with this folder",
  lost: "records are lost, or not served",
  unknown: "not known whether records are lost",
  unread: "not looked at",
  mend: "to be mended",
  heals: "heals by itself",
};
const MOST_FINDINGS = 10;

const hex = (value) => `0x${value.toString(16)}`;
const fileName = (path) => path.slice(path.lastIndexOf("/") + 1) || path;

function badge(level, text) {
  const [sign, word] = SIGNS[level] || ["?", level];
  return h(`span.badge.${level}`, null, h("span", { "aria-hidden": "true" }, sign), ` ${text || word}`);
}

// Counts of findings in a cell; nothing is said of none.
function marks(fact) {
  const found = [
    fact.damage ? badge("damage", `${countText(fact.damage)} damage`) : null,
    fact.notices ? badge("notice", plural(fact.notices, "notice")) : null,
  ].filter(Boolean);
  return found.length ? h("span.marks", null, found) : h("span.fine", null, "none");
}

const span = (first, last) =>
  !known(first) ? null : known(last) && last !== first ? `${countText(first)} to ${countText(last)}` : countText(first);

// Those that say the same of one partition are one item, with several places.
function alike(list) {
  const groups = new Map();
  for (const each of list) {
    const key = JSON.stringify([
      each.level,
      each.kind,
      each.reason,
      each.remedy,
      each.topic,
      each.partition,
      each.commands,
    ]);
    groups.set(key, [...(groups.get(key) || []), each]);
  }
  return [...groups.values()];
}

function finding(places) {
  const each = places[0];
  const partition = known(each.topic) ? partitionsOf(each)[0] : null;
  const place = (one) => [
    code(one.path),
    known(one.position)
      ? h("span.place", null, `byte ${span(one.position, one.endPosition)} (${hex(one.position)})`)
      : null,
    known(one.offset) ? h("span.place", null, `offset ${span(one.offset, one.lastOffset)}`) : null,
  ];
  return h(
    `li.finding.${each.level}`,
    null,
    h(
      "div.head",
      null,
      badge(each.level),
      h("strong", null, raw(each.kind)),
      URGENCIES[each.urgency] ? h("span.place", null, URGENCIES[each.urgency]) : null,
      partition ? partitionLink(partition) : known(each.topic) ? topicLink(each.topic) : null,
    ),
    h("p.reason", null, raw(each.reason)),
    h(
      "dl.where",
      null,
      h("dt", null, places.length > 1 ? `${countText(places.length)} files` : "File"),
      places.map((one) => h("dd", null, place(one))),
      each.remedy ? [h("dt", null, "Remedy"), h("dd", null, raw(each.remedy))] : null,
    ),
    commands(each.commands),
  );
}

// The findings of a page, worst first, with a choice of the level.
function findings(list, notListed) {
  if (!list.length && !notListed) return null;
  const levels = Object.keys(SIGNS).filter((level) => list.some((each) => each.level === level));
  const items = h("ol.findings");
  const more = h("button.more", {
    type: "button",
    onclick: () => {
      most = Infinity;
      fill();
    },
  });
  let level = "",
    most = MOST_FINDINGS;
  function fill() {
    const chosen = list.filter((each) => !level || each.level === level);
    const groups = alike(chosen);
    items.replaceChildren(...groups.slice(0, most).map(finding));
    more.hidden = groups.length <= most;
    more.textContent = `Show all ${countText(chosen.length)}`;
  }
  fill();
  const columns = [
    "urgency",
    "level",
    "kind",
    "reason",
    "remedy",
    "path",
    "topic",
    "partition",
    "position",
    "endPosition",
    "offset",
    "lastOffset",
  ];
  const rows = () =>
    list.map((each) => [...columns.map((name) => each[name]), each.commands.map((command) => command.text).join("\n")]);
  const made = h(
    "div.finding-list",
    null,
    h(
      "div.tools",
      null,
      levels.length > 1
        ? choice(
            "Level",
            [
              ["", `All ${countText(list.length)}`],
              ...levels.map((each) => [
                each,
                `${SIGNS[each][1]} ${countText(list.filter((one) => one.level === each).length)}`,
              ]),
            ],
            "",
            (value) => {
              level = value;
              fill();
            },
          )
        : null,
      h(
        "button",
        { type: "button", onclick: () => download("findings", csvText([...columns, "commands"], rows())) },
        "CSV",
      ),
    ),
    items,
    more,
    notListed ? hint(`${plural(notListed, "finding")} more: not in this report.`) : null,
  );
  made.showAll = () => {
    most = Infinity;
    fill();
  };
  return made;
}

// Files with damage or notices at a position, each as a line from its first byte to its last.
function damageMaps(partition, list) {
  const files = new Map();
  for (const each of list) {
    if (known(each.position)) files.set(each.path, [...(files.get(each.path) || []), each]);
  }
  return [...files].map(([path, found]) => {
    const segment = partition.segments.find(
      (each) => fileName(path) === each.name || `${each.name}.log` === fileName(path),
    );
    const end = Math.max(
      1,
      segment ? segment.size : 0,
      ...found.map((each) => each.endPosition || each.position + 1),
    );
    const parts = found.map((each) => ({
      start: each.position,
      end: each.endPosition || each.position + 1,
      kind: each.level,
      above: true,
      label: `${SIGNS[each.level][1]}: ${each.kind}`,
      more: [each.reason, each.remedy && `Remedy: ${each.remedy}`].filter(Boolean),
    }));
    return strip({
      title: h("span", null, "Map of ", code(fileName(path)), h("small", null, ` ${sizeText(end)}`)),
      from: 0,
      to: end,
      unit: "bytes",
      text: axisSize,
      parts: [{ start: 0, end, kind: "good", label: "the rest of the file" }, ...parts],
      legend: [
        ["good", "rest of the file"],
        ...[...new Set(found.map((each) => each.level))].map((level) => [level, SIGNS[level][1].toLowerCase()]),
      ],
      table: () =>
        table({
          caption: `Findings in ${fileName(path)}`,
          quiet: true,
          csv: `damage ${fileName(path)}`,
          rows: found,
          columns: [
            columnOf.count("From byte", (row) => row.position),
            columnOf.count("To byte", (row) => row.endPosition),
            columnOf.count("First offset", (row) => row.offset),
            columnOf.count("Last offset", (row) => row.lastOffset),
            columnOf.text("Level", (row) => row.level),
            columnOf.text("Kind", (row) => row.kind),
            columnOf.text("Reason", (row) => row.reason),
            columnOf.text("Remedy", (row) => row.remedy),
          ],
        }),
    });
  });
}
