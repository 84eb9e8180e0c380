// ---- the page: its address, search, light and dark, print ----

let facts = null;
const places = new Map(); // by topic and partition
const othersOf = new Map(); // names of partitions that are on the disk and not in this report, by topic

function index() {
  for (const name of facts.namesNotListed) {
    const [, topic] = /^(.*?)-\d+(?:\..*)?$/s.exec(name) || [null, name];
    if (!othersOf.has(topic)) othersOf.set(topic, []);
    othersOf.get(topic).push(name);
  }
  const names = new Map();
  for (const partition of facts.partitions) {
    const nth = (names.get(partition.name) || 0) + 1;
    names.set(partition.name, nth);
    partition.anchor = encodeURIComponent(partition.name) + (nth > 1 ? `@${nth}` : "");
    if (!known(partition.topic)) continue;
    const key = `${partition.partition} ${partition.topic}`;
    places.set(key, [...(places.get(key) || []), partition]);
  }
}

// The partitions that something with a topic and a partition speaks of; that of its path, or of the live folder, first.
function partitionsOf(each) {
  const found = places.get(`${each.partition} ${each.topic}`) || [];
  if (found.length < 2) return found;
  const fit = (one) => (known(each.path) && each.path.startsWith(one.path) ? 2 : 0) + (one.state === "live" ? 1 : 0);
  return found.slice().sort((a, b) => fit(b) - fit(a));
}

function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function go() {
  const [first, second] = location.hash.slice(1).split("/");
  drawn = [];
  hush();
  const isTopic = first === "topic" && second !== undefined;
  const partition = isTopic
    ? null
    : facts.partitions.find((each) => each.anchor === first || (first && decode(first) === each.name));
  const content = isTopic
    ? topicPage(decode(second))
    : partition
      ? partitionPage(partition)
      : first
        ? null
        : overview();
  const other = !isTopic && !partition && first && facts.namesNotListed.includes(decode(first)) ? decode(first) : null;
  const name = partition ? partition.name : isTopic ? decode(second) : other;
  show(
    content ||
      (other !== null
        ? notHere(other)
        : [
            h("h1", { tabindex: -1 }, "Not in this report"),
            hint(
              code(decode(isTopic ? second : first)),
              " was not on the disk when this report was made. ",
              h("a", { href: "#" }, "Overview"),
            ),
          ]),
    name,
    isTopic,
    partition,
  );
  if (!isTopic && second) part(second);
  else scrollTo(0, 0);
  document.documentElement.dataset.place = location.hash;
}

function show(content, name, isTopic, partition) {
  const main = byId("main");
  main.replaceChildren(...content.flat(Infinity).filter(Boolean));
  drawn.forEach((each) => each.draw());
  watcher.disconnect();
  watcher.observe(main);
  document.title = `${name ? `${name} - ` : ""}${facts.paths.join(", ")}: pylogseg report`;
  const topic = isTopic ? null : partition && known(partition.topic) ? partition.topic : null;
  byId("crumbs").replaceChildren(
    ...[
      h("a", { href: "#", "aria-current": name ? null : "page" }, "Overview"),
      topic !== null ? topicLink(topic) : null,
      name !== null ? h("span", { "aria-current": "page" }, raw(name)) : null,
    ]
      .filter(Boolean)
      .map((each) => h("li", null, each)),
  );
  const parts = [...main.querySelectorAll("[data-part]")];
  byId("parts").replaceChildren(
    ...parts.map((each) =>
      h(
        "li",
        null,
        h(
          "a",
          {
            href: `#${partition ? partition.anchor : ""}/${each.dataset.part}`,
            onclick: (event) => {
              event.preventDefault();
              event.stopPropagation();
              // Without the redrawing of a link: what was chosen on the page stays.
              try {
                history.pushState(null, "", event.currentTarget.getAttribute("href"));
                document.documentElement.dataset.place = location.hash;
              } catch {
                /* the frame of a notebook has no address of its own */
              }
              part(each.dataset.part);
            },
          },
          each.dataset.title,
        ),
      ),
    ),
  );
}

function part(id) {
  const found = byId(`part-${id}`);
  if (!found) return;
  found.scrollIntoView({ block: "start" });
  found.querySelector("h2").focus({ preventScroll: true });
}

// Search: topics and partitions whose names hold the words.
const MOST_HITS = 12;

function searchBox() {
  const list = h("ul", { id: "hits", role: "listbox", "aria-label": "Topics and partitions", hidden: true });
  const input = h("input", {
    id: "search",
    type: "search",
    role: "combobox",
    placeholder: "Find a topic or partition",
    "aria-label": "Find a topic or partition",
    "aria-expanded": "false",
    "aria-controls": "hits",
    "aria-autocomplete": "list",
    autocomplete: "off",
    spellcheck: "false",
  });
  let hits = [],
    at = -1;
  const hrefs = () => hits.map(([href]) => href);
  function close() {
    list.hidden = true;
    input.setAttribute("aria-expanded", "false");
    input.removeAttribute("aria-activedescendant");
  }
  function mark(next) {
    at = next;
    [...list.children].forEach((each, place) => each.setAttribute("aria-selected", String(place === at)));
    if (list.children[at]) {
      input.setAttribute("aria-activedescendant", list.children[at].id);
      list.children[at].scrollIntoView({ block: "nearest" });
    }
  }
  function open(href) {
    close();
    input.value = "";
    location.hash = href;
  }
  function find() {
    const words = input.value.trim().toLowerCase();
    const fit = (name) => name.toLowerCase().includes(words);
    hits = words
      ? [
          ...facts.topics
            .filter((each) => fit(each.name))
            .map((each) => [`topic/${encodeURIComponent(each.name)}`, each.name, plural(each.partitions, "partition")]),
          ...facts.partitions
            .filter((each) => fit(each.name))
            .map((each) => [each.anchor, each.name, sizeText(each.size)]),
          ...facts.namesNotListed
            .filter(fit)
            .map((name) => [encodeURIComponent(name), name, "on the disk, not in this report"]),
        ].slice(0, MOST_HITS)
      : [];
    list.replaceChildren(
      ...hits.map(([href, name, more], place) =>
        h(
          "li",
          {
            role: "option",
            id: `hit-${place}`,
            "aria-selected": "false",
            onpointerdown: (event) => {
              event.preventDefault();
              open(href);
            },
          },
          raw(name),
          h("small", null, more),
        ),
      ),
    );
    if (words && !hits.length)
      list.append(
        h("li.nothing", { role: "option", "aria-disabled": "true", "aria-selected": "false" }, "No such name"),
      );
    list.hidden = !words;
    input.setAttribute("aria-expanded", String(Boolean(words)));
    mark(hits.length ? 0 : -1);
  }
  input.addEventListener("input", find);
  input.addEventListener("focus", find);
  input.addEventListener("blur", close);
  input.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && hits[at]) open(hrefs()[at]);
    else if (event.key === "Escape") close();
    else if ((event.key === "ArrowDown" || event.key === "ArrowUp") && hits.length) {
      event.preventDefault();
      mark((at + (event.key === "ArrowDown" ? 1 : hits.length - 1)) % hits.length);
    }
  });
  return h("div.search", { role: "search" }, input, list);
}

const THEMES = { auto: "as the system", light: "light", dark: "dark" };

function themeButton() {
  const names = Object.keys(THEMES);
  const button = h("button", {
    type: "button",
    id: "theme",
    onclick: () => set(names[(names.indexOf(document.documentElement.dataset.theme || "auto") + 1) % 3]),
  });
  function set(name) {
    document.documentElement.dataset.theme = name;
    button.textContent = { auto: "◐", light: "☀", dark: "☾" }[name];
    button.setAttribute("aria-label", `Colours: ${THEMES[name]}`);
    button.title = `Colours: ${THEMES[name]}`;
    try {
      localStorage.setItem("pylogseg-report-theme", name);
    } catch {
      /* a frame or a file may have no storage */
    }
  }
  let kept = null;
  try {
    kept = localStorage.getItem("pylogseg-report-theme");
  } catch {
    /* as above */
  }
  set(kept in THEMES ? kept : "auto");
  return button;
}

// On paper there is no button to show more: charts get their numbers, lists all of their rows.
function print() {
  document.querySelectorAll("details.numbers").forEach((each) => {
    each.open = true;
  });
  document.querySelectorAll(".table, .finding-list").forEach((each) => each.showAll && each.showAll());
}

async function start() {
  facts = await unpack(byId("facts").textContent);
  index();
  byId("top").append(
    h(
      "a.skip",
      {
        href: "#main",
        onclick: (event) => {
          event.preventDefault();
          event.stopPropagation();
          byId("main").focus();
        },
      },
      "Skip to the content",
    ),
    h("div.topbar", null, h("nav", { "aria-label": "Place" }, h("ol", { id: "crumbs" })), searchBox(), themeButton()),
    h("nav.parts", { "aria-label": "Parts of this page" }, h("ul", { id: "parts" })),
  );
  // In a frame of a notebook the address of a link would be that of the notebook.
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[href^='#']");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
    event.preventDefault();
    location.hash = link.getAttribute("href");
  });
  addEventListener("hashchange", () => {
    go();
    if (!byId("main").contains(document.activeElement)) byId("main").querySelector("h1").focus({ preventScroll: true });
  });
  addEventListener("beforeprint", print);
  go();
  document.documentElement.dataset.ready = performance.now().toFixed(0);
}

start();
