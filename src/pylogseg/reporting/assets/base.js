// ---- base: the facts, text for people, elements, copying, hints ----

const MINUTE = 60e3,
  HOUR = 60 * MINUTE,
  DAY = 24 * HOUR;
const byId = (id) => document.getElementById(id);

async function unpack(text) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return JSON.parse(await new Response(stream).text());
}

// Elements. What comes from the disk gets into the page here, as text nodes and attributes, and nowhere else.
const SVG = "http://www.w3.org/2000/svg";
const SVG_TAGS = new Set("svg g rect line path text circle title defs pattern".split(" "));

function h(tag, attributes, ...children) {
  const [name, ...classes] = tag.split(".");
  const made = SVG_TAGS.has(name) ? document.createElementNS(SVG, name) : document.createElement(name);
  if (classes.length) made.setAttribute("class", classes.join(" "));
  for (const [key, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else made.setAttribute(key, value === true ? "" : value);
  }
  made.append(
    ...children
      .flat(Infinity)
      .filter((child) => child !== null && child !== undefined && child !== false && child !== ""),
  );
  return made;
}

// A name from the disk: its direction of writing stays inside of it.
const SHORT = 36;
const raw = (text) => h(String(text).length > SHORT ? "bdi" : "bdi.short", null, String(text));
const code = (text) => h("code", null, raw(text));

// Text for people; `data` and `time` elements have the exact value beside it.
const known = (value) => value !== null && value !== undefined;
const group = new Intl.NumberFormat("en-US");
const fewDigits = new Intl.NumberFormat("en-US", { maximumFractionDigits: 2 });
const countText = (value) => group.format(value);
const plural = (value, one, many = one + "s") => `${countText(value)} ${value === 1 ? one : many}`;

function sizeText(size) {
  const sign = size < 0 ? "-" : "";
  size = Math.abs(size);
  for (const unit of ["B", "kB", "MB", "GB"]) {
    if (size < 999.5) return sign + size.toFixed(unit === "B" || size >= 99.95 ? 0 : 1) + " " + unit;
    size /= 1000;
  }
  return `${sign}${size.toFixed(1)} TB`;
}

function isoText(ms) {
  const date = new Date(ms);
  return Number.isNaN(date.getTime()) ? String(ms) : date.toISOString();
}

const timeText = (ms) =>
  isoText(ms)
    .replace("T", " ")
    .replace(/(\.000)?Z$/, "");

function spanText(ms) {
  if (ms < 0) return `${spanText(-ms)} ahead`;
  for (const [unit, size] of [
    ["year", 365 * DAY],
    ["day", DAY],
    ["hour", HOUR],
    ["minute", MINUTE],
    ["second", 1e3],
  ]) {
    if (ms >= size) return `${fewDigits.format(ms / size)} ${ms === size ? unit : unit + "s"}`;
  }
  return `${ms} ms`;
}

const dash = () => h("span.none", { title: "not known" }, "–");
const shown = (value, text, exact) => (known(value) ? h("data", { value, title: exact }, text(value)) : dash());
const count = (value) => shown(value, countText);
const number = (value) => shown(value, (each) => fewDigits.format(each));
const percent = (value) => shown(value, (each) => `${fewDigits.format(100 * each)} %`);
const size = (value) => shown(value, sizeText, known(value) ? plural(value, "byte") : null);
const time = (ms) =>
  known(ms) ? h("time", { datetime: isoText(ms), title: isoText(ms), "data-ms": ms }, timeText(ms)) : dash();
// A cleanup.policy, which may only be assumed.
const policyText = (fact) => (known(fact.policy) ? fact.policy : `not known (${fact.assumedPolicy || "delete"} assumed)`);
const about = (isEstimate) => (isEstimate ? h("span.about", { title: "estimated from some headers" }, "about ") : null);

// Links. `#orders-3` is a partition, `#topic/orders` a topic, `#/groups` and `#orders-3/segments` are parts of a page.
const partitionLink = (partition) => h("a", { href: `#${partition.anchor}` }, raw(partition.name));
const topicLink = (name) => h("a", { href: `#topic/${encodeURIComponent(name)}` }, raw(name));

// What was done is said beside the pointer, and to screen readers.
let tipTimer = 0;
function say(content, x, y) {
  const tip = byId("tip");
  clearTimeout(tipTimer);
  tip.replaceChildren(...[content].flat(Infinity));
  tip.classList.add("on");
  const room = document.documentElement.clientWidth - tip.offsetWidth - 8;
  tip.style.left = `${Math.max(8, Math.min(x + 14, room))}px`;
  tip.style.top = `${y + tip.offsetHeight + 26 > innerHeight ? Math.max(8, y - tip.offsetHeight - 12) : y + 16}px`;
}
const hush = () => byId("tip").classList.remove("on");

function sayAt(element, text) {
  const box = element.getBoundingClientRect();
  say(text, box.left, box.bottom - 8);
  tipTimer = setTimeout(hush, 1500);
}

// Copying: the clipboard may be forbidden, as in a frame; the older way works there.
async function copy(text, button) {
  let done = false;
  try {
    await navigator.clipboard.writeText(text);
    done = true;
  } catch {
    const area = h("textarea", { class: "off", "aria-hidden": "true" });
    area.value = text;
    document.body.append(area);
    area.select();
    done = document.execCommand("copy");
    area.remove();
  }
  sayAt(button, done ? "Copied" : "Could not copy: select the text");
}

const LABELS = { show: "Show", try: "Try", mend: "Mend" };
const HINTS = { show: "reads only", try: "a dry run: changes nothing", mend: "changes files" };

function commands(list) {
  if (!list.length) return null;
  return h(
    "ul.commands",
    { "aria-label": "commands" },
    list.map((each) =>
      h(
        "li",
        null,
        h(`span.what.${each.what}`, { title: HINTS[each.what] }, LABELS[each.what] || each.what),
        h("code.line", { tabindex: 0, role: "group", "aria-label": "command" }, raw(each.text)),
        h(
          "button.copy",
          {
            type: "button",
            "aria-label": `Copy: ${each.text}`,
            onclick: (event) => copy(each.text, event.currentTarget),
          },
          "Copy",
        ),
        each.note ? h("span.note", null, raw(each.note)) : null,
      ),
    ),
  );
}

// A CSV as RFC 4180; what a spreadsheet would take for a formula stays text.
function csvText(head, rows) {
  const cell = (value) => {
    if (!known(value)) return "";
    let text = String(value);
    if (typeof value === "string" && /^[=+\-@\t\r]/.test(text)) text = `'${text}`;
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return [head, ...rows].map((row) => row.map(cell).join(",")).join("\r\n") + "\r\n";
}

function download(name, text) {
  const url = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
  h("a", { href: url, download: name.replace(/[^\w.-]+/g, "_").slice(0, 120) + ".csv" }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10e3);
}

// Parts of a page.
function section(id, title, ...content) {
  const kept = content.flat(Infinity).filter(Boolean);
  if (!kept.length) return null;
  return h(
    "section.card",
    { id: `part-${id}`, "data-part": id, "data-title": title, "aria-labelledby": `title-${id}` },
    h("h2", { id: `title-${id}`, tabindex: -1 }, title),
    kept,
  );
}

const tile = (label, value, ...more) =>
  h("div.tile", null, h("dt", null, label), h("dd", null, value, more.length ? h("small", null, more) : null));
const tiles = (...content) => h("dl.tiles", null, content);
const hint = (...text) => h("p.hint", null, text);
