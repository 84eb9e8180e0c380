// ---- tables: sorted by a click, filtered, cut, copied as CSV ----

const MOST_ROWS = 50;
const WORD = { asc: "ascending", desc: "descending" };

// A column: title, value (for sorting and CSV), show (an element; the value as text without it), kind ("number" or not), unit.
function column(title, value, show, kind) {
  return { title, value, show: show || ((row) => (known(value(row)) ? raw(value(row)) : dash())), kind };
}

const columnOf = {
  text: (title, value) => column(title, value),
  count: (title, value) => column(title, value, (row) => count(value(row)), "number"),
  number: (title, value) => column(title, value, (row) => number(value(row)), "number"),
  size: (title, value) => column(title, value, (row) => size(value(row)), "number"),
  percent: (title, value) => column(title, value, (row) => percent(value(row)), "number"),
  time: (title, value) => column(title, value, (row) => time(value(row)), "time"),
  span: (title, value) => column(title, value, (row) => shown(value(row), spanText), "number"),
  list: (title, value) => column(title, (row) => value(row).join(" ")),
};

function compare(a, b) {
  if (!known(a) || !known(b)) return known(b) - known(a) || 0;
  return typeof a === "number" && typeof b === "number"
    ? a - b
    : String(a).localeCompare(String(b), "en", { numeric: true });
}

// options: caption, rows, columns, csv (file name), sort ([column, "asc" | "desc"]), search (row => text), states ({label, of}),
// keep (row => bool, asked again at `refresh`), most, quiet (the caption is for screen readers only)
function table(options) {
  const { rows, columns } = options;
  const state = { sort: options.sort || null, text: "", state: "", most: options.most || MOST_ROWS };
  const body = h("tbody");
  const status = h("span.rows", { role: "status" });
  const heads = columns.map((each, index) =>
    h(
      "th",
      { scope: "col", class: each.kind || null },
      h(
        "button",
        { type: "button", onclick: () => sortBy(index) },
        each.title,
        h("span.arrow", { "aria-hidden": "true" }),
      ),
    ),
  );
  const all = h("button.more", {
    type: "button",
    onclick: () => {
      state.most = Infinity;
      fill();
    },
  });

  function chosen() {
    const words = state.text.toLowerCase();
    let found = rows.filter(
      (row) =>
        (!words || options.search(row).toLowerCase().includes(words)) &&
        (!state.state || options.states.of(row).includes(state.state)) &&
        (!options.keep || options.keep(row)),
    );
    if (state.sort) {
      const [index, way] = state.sort;
      const value = columns[index].value,
        sign = way === "asc" ? 1 : -1;
      // Rows without a value come last, whichever way.
      found = found.slice().sort((a, b) => {
        const [x, y] = [value(a), value(b)];
        return known(x) && known(y) ? sign * compare(x, y) : compare(x, y);
      });
    }
    return found;
  }

  function sortBy(index) {
    const first = columns[index].kind ? "desc" : "asc";
    const [now, way] = state.sort || [];
    state.sort = [index, now !== index ? first : way === "asc" ? "desc" : "asc"];
    fill();
  }

  function fill() {
    const found = chosen();
    body.replaceChildren(
      ...found.slice(0, state.most).map((row) =>
        h(
          "tr",
          options.row ? options.row(row) : null,
          columns.map((each, index) =>
            h(
              index === 0 ? "th" : "td",
              { class: each.kind || null, scope: index === 0 ? "row" : null },
              each.show(row),
            ),
          ),
        ),
      ),
    );
    if (!found.length) body.append(h("tr", null, h("td.empty", { colspan: columns.length }, "No rows.")));
    heads.forEach((head, index) => {
      const way = state.sort && state.sort[0] === index ? state.sort[1] : null;
      way ? head.setAttribute("aria-sort", WORD[way]) : head.removeAttribute("aria-sort");
    });
    status.textContent =
      found.length === rows.length
        ? plural(rows.length, "row")
        : `${countText(found.length)} of ${plural(rows.length, "row")}`;
    all.textContent = `Show all ${countText(found.length)}`;
    all.hidden = found.length <= state.most;
  }

  const filters = options.search || options.states;
  const tools = h(
    "div.tools",
    null,
    options.quiet ? null : h("span.name", { "aria-hidden": "true" }, options.caption),
    h("span.grow"),
    options.search
      ? h(
          "label",
          null,
          h("span", null, "Search"),
          h("input", {
            type: "search",
            autocomplete: "off",
            spellcheck: "false",
            oninput: (event) => {
              state.text = event.target.value;
              fill();
            },
          }),
        )
      : null,
    options.states
      ? h(
          "label",
          null,
          h("span", null, options.states.label),
          h(
            "select",
            {
              onchange: (event) => {
                state.state = event.target.value;
                fill();
              },
            },
            h("option", { value: "" }, "all"),
            [...new Set(rows.flatMap(options.states.of))].sort().map((each) => h("option", { value: each }, each)),
          ),
        )
      : null,
    filters || rows.length > state.most || options.keep ? status : null,
    h(
      "button",
      {
        type: "button",
        onclick: () =>
          download(
            options.csv,
            csvText(
              columns.map((each) => each.title),
              chosen().map((row) => columns.map((each) => each.value(row))),
            ),
          ),
      },
      "CSV",
    ),
  );
  fill();
  const made = h(
    "div.table",
    null,
    tools,
    h(
      "div.scroll",
      { tabindex: 0, role: "group", "aria-label": options.caption },
      h("table", null, h("caption.off", null, options.caption), h("thead", null, h("tr", null, heads)), body),
    ),
    all,
  );
  made.refresh = fill;
  made.showAll = () => {
    state.most = Infinity;
    fill();
  };
  return made;
}

// The numbers of a chart, shut until somebody asks for them.
function numbers(make) {
  const details = h("details.numbers", { ontoggle: () => open() }, h("summary", null, "Numbers"));
  let made = null;
  function open() {
    if (!made && details.open) details.append((made = make()));
  }
  details.refresh = () => made && made.refresh();
  return details;
}
