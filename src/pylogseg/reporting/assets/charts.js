// ---- charts: SVG, drawn for the width there is; each has its numbers as a table ----

const LEFT = 58,
  RIGHT = 10,
  AXIS = 22;

// A range of time that all charts of a page share.
function makeZoom(extent) {
  const zoom = { extent, range: extent, listeners: [] };
  zoom.all = () => zoom.range[0] === extent[0] && zoom.range[1] === extent[1];
  zoom.has = (first, last) =>
    zoom.all() || (known(first) && first <= zoom.range[1] && (known(last) ? last : first) >= zoom.range[0]);
  zoom.set = (from, to) => {
    from = Math.max(extent[0], Math.min(from, to));
    to = Math.min(extent[1], Math.max(from + 1, to));
    zoom.range = from < to ? [from, to] : extent;
    zoom.listeners.forEach((each) => each());
  };
  zoom.by = (factor, shift) => {
    const [from, to] = zoom.range;
    const half = ((to - from) / 2) * factor,
      middle = (from + to) / 2 + shift * (to - from);
    const kept = Math.max(extent[0] + half, Math.min(extent[1] - half, middle));
    half * 2 >= extent[1] - extent[0]
      ? zoom.set(...extent)
      : zoom.set(Math.round(kept - half), Math.round(kept + half));
  };
  return zoom;
}

function zoomBar(zoom) {
  const field = (label, index) => {
    const input = h("input", {
      type: "datetime-local",
      step: "1",
      onchange: () => {
        const ms = Date.parse(input.value + "Z");
        if (!Number.isNaN(ms)) zoom.set(...zoom.range.map((each, at) => (at === index ? ms : each)));
      },
    });
    return [h("label", null, h("span", null, label), input), input];
  };
  const [from, first] = field("From (UTC)", 0),
    [to, last] = field("To", 1);
  const button = (label, sign, act) =>
    h("button", { type: "button", "aria-label": label, title: label, onclick: act }, sign);
  const now = h("span.now", { role: "status" });
  const bar = h(
    "div.zoom",
    { role: "group", "aria-label": "Time range" },
    from,
    to,
    button("Zoom in", "+", () => zoom.by(0.5, 0)),
    button("Zoom out", "−", () => zoom.by(2, 0)),
    button("Earlier", "◀", () => zoom.by(1, -0.5)),
    button("Later", "▶", () => zoom.by(1, 0.5)),
    button("All of the time", "All", () => zoom.set(...zoom.extent)),
    now,
  );
  const update = () => {
    [first, last].forEach((input, index) => {
      input.value = isoText(zoom.range[index]).slice(0, 19);
    });
    now.textContent = zoom.all()
      ? "all of the time; drag over a chart to zoom"
      : `${spanText(zoom.range[1] - zoom.range[0])} of ${spanText(zoom.extent[1] - zoom.extent[0])}`;
  };
  zoom.listeners.push(update);
  update();
  return bar;
}

// Ticks.
function niceTicks(from, to, most) {
  const rough = (to - from) / Math.max(1, most) || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = Math.max([1, 2, 5, 10].find((each) => each * power >= rough) * power, Number.MIN_VALUE);
  const ticks = [];
  for (let at = Math.ceil(from / step) * step; at <= to && ticks.length < 50; at += step) ticks.push(at);
  return ticks;
}

const STEPS = [
  1,
  10,
  100,
  1e3,
  5e3,
  15e3,
  30e3,
  MINUTE,
  5 * MINUTE,
  15 * MINUTE,
  30 * MINUTE,
  HOUR,
  3 * HOUR,
  6 * HOUR,
  12 * HOUR,
  DAY,
  2 * DAY,
  7 * DAY,
  14 * DAY,
];
const MONTHS = [1, 3, 6, 12, 24, 60, 120, 240, 600, 1200];

function timeTicks(from, to, most) {
  const step = STEPS.find((each) => (to - from) / each <= most);
  const ticks = [];
  if (step) {
    for (let at = Math.ceil(from / step) * step; at <= to; at += step) ticks.push(at);
    let day = "";
    return ticks.map((at) => {
      const text = isoText(at),
        date = `${text.slice(8, 10)} ${MONTH[Number(text.slice(5, 7)) - 1]}`;
      const clock = step < 1e3 ? text.slice(14, 23) : step < MINUTE ? text.slice(11, 19) : text.slice(11, 16);
      const label = step >= DAY ? date : day !== date ? `${date} ${clock}` : clock;
      day = date;
      return [at, label];
    });
  }
  const months = MONTHS.find((each) => (to - from) / (each * 30.4 * DAY) <= most) || 12000;
  const first = new Date(from);
  for (
    let month = Math.ceil((first.getUTCFullYear() * 12 + first.getUTCMonth()) / months) * months;
    ;
    month += months
  ) {
    const at = Date.UTC(Math.floor(month / 12), month % 12);
    if (!(at <= to)) break;
    if (at >= from)
      ticks.push([at, months < 12 ? `${MONTH[month % 12]} ${Math.floor(month / 12)}` : String(Math.floor(month / 12))]);
  }
  return ticks;
}
const MONTH = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split(" ");
const axisSize = (value) => sizeText(value).replace(".0 ", " ");
const axisCount = new Intl.NumberFormat("en-US", { notation: "compact", maximumFractionDigits: 1 }).format;

function scale(from, to, left, right) {
  const span = to - from || 1;
  const at = (value) => left + ((value - from) / span) * (right - left);
  at.back = (x) => from + ((x - left) / (right - left)) * span;
  return at;
}

function horizontal(ticks, at, y, width) {
  let end = -Infinity;
  return h(
    "g.axis",
    null,
    ticks.map(([value, label]) => {
      const x = at(value),
        half = label.length * 3.4;
      const place = Math.max(half, Math.min(width - half, x));
      if (place - half < end + 6) return h("line", { x1: x, x2: x, y1: y, y2: y + 3 });
      end = place + half;
      return [
        h("line", { x1: x, x2: x, y1: y, y2: y + 4 }),
        h("text", { x: place, y: y + 16, "text-anchor": "middle" }, label),
      ];
    }),
  );
}

// Charts of a page are drawn when it is in the document, and again when its width changes.
let drawn = [];
const watcher = new ResizeObserver(() => drawn.forEach((each) => each.fit()));

// options: title, label (what a screen reader says), make (width => {svg, marks}), controls, legend, table, zoom
function figure(options) {
  const holder = h("div.plot");
  let width = 0,
    marks = [],
    current = -1,
    ring = null;
  const details = options.table ? numbers(options.table) : null;

  function draw() {
    width = Math.max(240, holder.clientWidth);
    const made = options.make(width);
    marks = made.marks;
    current = -1;
    ring = h("rect.ring", { hidden: "", rx: 3 });
    made.svg.append(ring);
    made.svg.setAttribute("role", "img");
    made.svg.setAttribute("tabindex", 0);
    made.svg.setAttribute("aria-label", `${options.label || options.title}. Arrow keys read the values.`);
    holder.replaceChildren(made.svg);
    wire(made.svg, made.at);
    if (details) details.refresh();
  }

  function show(index) {
    const mark = marks[index];
    current = index;
    const box = holder.firstChild.getBoundingClientRect(),
      shrink = box.width / width;
    Object.entries({ x: mark.x - 1.5, y: mark.y - 1.5, width: mark.width + 3, height: mark.height + 3 }).forEach(
      ([key, value]) => ring.setAttribute(key, value),
    );
    ring.removeAttribute("hidden");
    return [box.left + (mark.x + mark.width / 2) * shrink, box.top + mark.y * shrink];
  }

  function rest() {
    ring.setAttribute("hidden", "");
    hush();
  }

  function find(x, y) {
    let best = -1,
      least = 14;
    marks.forEach((mark, index) => {
      const away = Math.max(mark.x - x, 0, x - mark.x - mark.width);
      const apart = mark.tall ? 0 : Math.max(mark.y - y, 0, y - mark.y - mark.height);
      if (away + apart <= least && (away + apart < least || mark.above)) [best, least] = [index, away + apart];
    });
    return best;
  }

  function wire(svg, at) {
    const place = (event) => {
      const box = svg.getBoundingClientRect();
      return [((event.clientX - box.left) * width) / box.width, ((event.clientY - box.top) * width) / box.width];
    };
    let from = null,
      brush = null;
    const hintAt = (event) => {
      const index = find(...place(event));
      if (index < 0) return rest();
      show(index);
      say(marks[index].tip(), event.clientX, event.clientY);
    };
    svg.addEventListener("click", hintAt); // a finger does not hover
    svg.addEventListener("pointermove", (event) => {
      const [x] = place(event);
      if (from !== null) {
        if (!brush && Math.abs(x - from) > 4)
          svg.append((brush = h("rect.brush", { y: 0, height: svg.viewBox.baseVal.height })));
        if (brush) {
          brush.setAttribute("x", Math.min(x, from));
          brush.setAttribute("width", Math.abs(x - from));
          return hush();
        }
      }
      hintAt(event);
    });
    svg.addEventListener("pointerleave", () => from === null && rest());
    svg.addEventListener("blur", rest);
    svg.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1, Home: -Infinity, End: Infinity }[
        event.key
      ];
      if (step && marks.length) {
        event.preventDefault();
        const next = current < 0 && Math.abs(step) === 1 ? 0 : Math.max(0, Math.min(marks.length - 1, current + step));
        const [x, y] = show(next);
        say(marks[next].tip(), x, y);
      } else if (event.key === "Escape") rest();
      else if (event.key === "Enter" && current >= 0 && marks[current].href) location.hash = marks[current].href;
      else if (options.zoom && at && (event.key === "+" || event.key === "-"))
        options.zoom.by(event.key === "+" ? 0.5 : 2, 0);
    });
    if (!options.zoom || !at) return;
    svg.classList.add("zooms");
    svg.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      [from] = place(event);
      svg.setPointerCapture(event.pointerId);
    });
    const end = (event) => {
      const [to] = place(event),
        start = from,
        dragged = brush;
      from = brush = null;
      if (!dragged) return;
      dragged.remove();
      if (event.type === "pointerup")
        options.zoom.set(Math.round(at.back(Math.min(start, to))), Math.round(at.back(Math.max(start, to))));
    };
    svg.addEventListener("pointerup", end);
    svg.addEventListener("pointercancel", end);
  }

  drawn.push({
    fit: () => holder.isConnected && Math.abs(Math.max(240, holder.clientWidth) - width) > 1 && draw(),
    draw,
  });
  if (options.zoom) options.zoom.listeners.push(draw);
  const made = h(
    "figure",
    null,
    h("figcaption", null, h("span", null, options.title), h("span.grow"), options.controls),
    holder,
    options.legend
      ? h(
          "ul.legend",
          null,
          options.legend.map(([name, text]) =>
            h("li", null, h(`span.swatch.${name}`, { "aria-hidden": "true" }), raw(text)),
          ),
        )
      : null,
    details,
  );
  made.redraw = draw;
  return made;
}

const canvas = (width, height, ...content) => h("svg", { viewBox: `0 0 ${width} ${height}` }, content);

// A choice among a few, as radio buttons.
let choices = 0;
function choice(label, options, chosen, act) {
  const name = `choice${(choices += 1)}`;
  return h(
    "span.choice",
    { role: "radiogroup", "aria-label": label },
    options.map(([value, text]) =>
      h(
        "label",
        null,
        h("input", { type: "radio", name, value, checked: value === chosen, onchange: () => act(value) }),
        h("span", null, text),
      ),
    ),
  );
}

// Records or bytes by time.
function timeChart(title, sources, zoom, first) {
  const names = Object.keys(sources);
  let name = first || names[0],
    unit = "bytes";
  const buckets = () => {
    const { starts, stepMs, records, bytes } = sources[name];
    return starts.map((start, index) => ({
      start,
      end: start + stepMs,
      records: records[index],
      bytes: bytes[index],
    }));
  };
  function make(width) {
    const height = 190,
      [from, to] = zoom.range,
      right = width - RIGHT,
      base = height - AXIS;
    const step = sources[name].stepMs || 1;
    const wide = step * Math.max(1, Math.ceil((to - from) / step / Math.max(1, (right - LEFT) / 4)));
    const bins = new Map();
    for (const each of buckets()) {
      if (each.end <= from || each.start >= to) continue;
      const start = Math.floor(each.start / wide) * wide;
      const bin = bins.get(start) || {
        start: wide === step ? each.start : start,
        end: (wide === step ? each.start : start) + wide,
        records: 0,
        bytes: 0,
      };
      bin.records += each.records;
      bin.bytes += each.bytes;
      bins.set(start, bin);
    }
    const list = [...bins.values()];
    const top = Math.max(1, ...list.map((each) => each[unit]));
    const x = scale(from, to, LEFT, right),
      y = scale(0, top, base, 10);
    const marks = list.map((each) => {
      const left = Math.max(LEFT, x(each.start)),
        end = Math.min(right, x(each.end));
      const room = Math.max(1.5, end - left - (end - left > 4 ? 1 : 0));
      return {
        x: left,
        width: room,
        y: Math.min(y(each[unit]), base - 1),
        height: Math.max(1, base - y(each[unit])),
        tall: true,
        tip: () => [
          h("b", null, `${timeText(each.start)} to ${timeText(each.end)}`),
          h("span", null, plural(each.records, "record")),
          h("span", null, plural(each.bytes, "byte")),
          sources[name].isEstimate ? h("span", null, "estimated") : "",
        ],
      };
    });
    const svg = canvas(
      width,
      height,
      h(
        "g.axis",
        null,
        niceTicks(0, top, 4)
          .filter((tick) => unit === "bytes" || Number.isInteger(tick))
          .map((tick) => [
            h("line.grid", { x1: LEFT, x2: right, y1: y(tick), y2: y(tick) }),
            h(
              "text",
              { x: LEFT - 6, y: y(tick) + 4, "text-anchor": "end" },
              unit === "bytes" ? axisSize(tick) : axisCount(tick),
            ),
          ]),
      ),
      h("line.base", { x1: LEFT, x2: right, y1: base, y2: base }),
      horizontal(timeTicks(from, to, (right - LEFT) / 75), x, base, width),
      marks.map((mark) =>
        h("rect.bar", {
          x: mark.x,
          y: mark.y,
          width: mark.width,
          height: mark.height,
          rx: mark.width > 6 ? 2 : 0,
        }),
      ),
      list.length
        ? null
        : h(
            "text.nothing",
            { x: (LEFT + right) / 2, y: base / 2, "text-anchor": "middle" },
            "Nothing with a time in this range.",
          ),
    );
    return { svg, marks, at: x };
  }
  const made = figure({
    title,
    make,
    zoom,
    label: `${title}: bars by time`,
    controls: [
      names.length > 1
        ? choice(
            "Bars for",
            names.map((each) => [each, each]),
            name,
            (value) => {
              name = value;
              zoom.set(...extentOf(sources[name]));
            },
          )
        : null,
      choice(
        "Unit",
        [
          ["bytes", "Bytes"],
          ["records", "Records"],
        ],
        unit,
        (value) => {
          unit = value;
          made.redraw();
        },
      ),
    ],
    table: () => {
      const rows = names.flatMap((each) => {
        const { starts, stepMs, records, bytes } = sources[each];
        return starts.map((start, index) => ({
          name: each,
          start,
          end: start + stepMs,
          records: records[index],
          bytes: bytes[index],
        }));
      });
      return table({
        caption: title,
        quiet: true,
        csv: title,
        rows,
        keep: (row) => row.name === name && zoom.has(row.start, row.end - 1),
        columns: [
          columnOf.time("From", (row) => row.start),
          columnOf.time("To", (row) => row.end),
          columnOf.count("Records", (row) => row.records),
          columnOf.size("Bytes", (row) => row.bytes),
        ],
      });
    },
  });
  return made;
}

// A line of parts in order of their place: a file by positions, a log by offsets.
// parts: start, end, kind (a class), label, href; those with `above` lie over the others.
function strip({ title, from, to, parts, text, legend, table: make, unit }) {
  return figure({
    title,
    legend,
    table: make,
    label: `${title}: ${plural(parts.length, "part")}`,
    make: (width) => {
      const height = 38 + AXIS,
        base = 38,
        x = scale(from, to, 8, width - 8);
      const marks = parts.map((each) => {
        const left = x(Math.max(from, each.start)),
          wide = Math.max(each.above ? 4 : 1, x(Math.min(to, each.end)) - left - (each.above ? 0 : 0.7));
        return {
          ...each,
          x: Math.min(left, width - 8 - wide),
          width: wide,
          y: each.above ? 9 : 11,
          height: each.above ? 26 : 22,
          tip: () => [
            h("b", null, raw(each.label)),
            // Ranges of offsets are told with both ends, those of bytes without the last, as by the commands.
            h(
              "span",
              null,
              `${unit} ${countText(each.start)} to ${countText(unit === "offsets" ? each.end - 1 : each.end)}`,
            ),
            (each.more || []).map((line) => h("span", null, raw(line))),
          ],
        };
      });
      const ticks = niceTicks(from, to, width / 110).map((tick) => [tick, text(tick)]);
      return {
        marks,
        svg: canvas(
          width,
          height,
          hatch(),
          h("rect.track", { x: 8, y: 11, width: width - 16, height: 22, rx: 3 }),
          marks.map((mark) =>
            h(`rect.part.${mark.kind}`, {
              x: mark.x,
              y: mark.y,
              width: mark.width,
              height: mark.height,
              rx: mark.width > 6 ? 2 : 0,
            }),
          ),
          marks
            .filter((mark) => mark.above)
            .map((mark) => h("path.flag", { d: `M${mark.x + mark.width / 2} 7l-4.5 -7h9z` })),
          horizontal(ticks, x, base, width),
        ),
      };
    },
  });
}

const hatch = () =>
  h(
    "defs",
    null,
    h(
      "pattern",
      { id: "hatch", width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
      h("rect.hatch-ground", { width: 6, height: 6 }),
      h("rect.hatch-line", { width: 2.5, height: 6 }),
    ),
  );

// Sizes as a box on a logarithmic axis: least, half, nine tenths, 99 of 100, largest.
function boxChart(title, boxes, make) {
  const kept = boxes.filter(([, each]) => each.count);
  if (!kept.length) return null;
  return figure({
    title,
    table: make,
    label: `${title}: least, median, 90th and 99th percentile, and largest`,
    legend: [
      ["range", "least to largest"],
      ["box", "median to 99th percentile"],
      ["dot", "median"],
    ],
    make: (width) => {
      const row = 30,
        base = kept.length * row + 4,
        height = base + AXIS;
      const top = Math.max(10, ...kept.map(([, each]) => each.max)),
        log = (value) => Math.log10(Math.max(1, value));
      const x = scale(0, Math.ceil(log(top) * 2) / 2, LEFT, width - RIGHT - 8),
        at = (value) => x(log(value));
      const marks = [],
        ticks = [];
      for (let power = 0; power <= log(top) + 0.5; power += 1) ticks.push([power, axisSize(10 ** power)]);
      const rows = kept.map(([name, each], index) => {
        const y = index * row + 17,
          edges = [each.min, each.p50, each.p90, each.p99, each.max];
        marks.push({
          x: at(each.min),
          width: Math.max(4, at(each.max) - at(each.min)),
          y: y - 10,
          height: 20,
          tip: () => [
            h("b", null, `${name}: ${plural(each.count, "value")}`),
            ["least", "median", "90 %", "99 %", "largest"].map((word, place) =>
              h("span", null, `${word}: ${known(edges[place]) ? plural(edges[place], "byte") : "not known"}`),
            ),
            h("span", null, `mean: ${fewDigits.format(each.mean)} bytes`),
          ],
        });
        return [
          h("text", { x: LEFT - 8, y: y + 4, "text-anchor": "end" }, name),
          h("rect.range", {
            x: at(each.min),
            width: Math.max(1, at(each.max) - at(each.min)),
            y: y - 1,
            height: 2,
          }),
          h("rect.box", {
            x: at(each.p50),
            width: Math.max(2, at(each.p99) - at(each.p50)),
            y: y - 7,
            height: 14,
            rx: 2,
          }),
          h("circle.dot", { cx: at(each.p50), cy: y, r: 5 }),
        ];
      });
      return {
        marks,
        svg: canvas(
          width,
          height,
          h(
            "g.axis",
            null,
            ticks.map(([power]) => h("line.grid", { x1: x(power), x2: x(power), y1: 0, y2: base })),
          ),
          rows,
          horizontal(ticks, x, base, width),
        ),
      };
    },
  });
}

// Bars in rows, with a link each: sizes by topic or by disk.
function barList(title, rows, make) {
  const top = Math.max(1, ...rows.map((row) => row.whole || row.value));
  const list = h(
    "ol.bars",
    null,
    rows.map((row) =>
      h(
        "li",
        null,
        h("span.name", null, row.link),
        h(
          "span.bar-room",
          { title: row.title },
          h("span.bar-part", { "data-width": row.value / top }),
          row.whole ? h("span.bar-rest", { "data-width": (row.whole - row.value) / top }) : null,
        ),
        h("span.bar-value", null, row.shown),
      ),
    ),
  );
  list.querySelectorAll("[data-width]").forEach((each) => {
    each.style.width = `${100 * each.dataset.width}%`;
  });
  return h("figure", null, h("figcaption", null, h("span", null, title)), list, make ? numbers(make) : null);
}
