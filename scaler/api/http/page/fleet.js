// All workloads: sums, filters, and a table of which only the rows in view exist.

import { h, mark, plain, say, showObstacle, showReason, sign } from "./dom.js";
import * as format from "./format.js";
import { hashOf, keyOf } from "./api.js";
import * as spark from "./spark.js";

const OVERSCAN = 8; // rows above and below the view, so that scrolling shows no gaps
const REDRAWN_S = 5; // a sparkline moves by a pixel in half a minute

const COLUMNS = [
  { name: "workload", label: "Workload", sort: (row) => `${row.namespace}/${row.name}/${row.trigger}` },
  { name: "state", label: "State and reason", sort: null }, // the order of the server: by severity
  { name: "replicas", label: "Replicas", sort: (row) => row.published },
  { name: "load", label: "Requests", sort: (row) => row.load },
  { name: "demand", label: "Demand", sort: (row) => row.demand },
  { name: "gpu", label: "GPU activity", sort: (row) => row.gpu },
  { name: "age", label: "Age", sort: (row) => (row.held_since ?? row.measured_at) * -1 || null },
];

// words: of `words.json`. wanted: called with the rows in view after each drawing. of: the history of a row, or null.
export function fleetView(words, { wanted, of }) {
  const stateWords = new Map(words.states.map((word) => [word.code, word]));
  const reasonWords = new Map(words.reasons.map((word) => [word.code, word]));
  const hindrances = new Map((words.hindrances ?? []).map((word) => [word.code, word]));
  const filter = { text: "", namespace: "", reason: "", states: new Set() };
  const order = { column: "state", down: false };
  const drawn = new Map(); // key -> the elements of a row in view
  let shown = { now: 0, workloads: [], fleet: null };
  let rows = []; // that pass the filters, in order
  let selected = null;

  const strip = fleetStrip(stateWords, (state) => {
    if (!filter.states.delete(state)) filter.states.add(state);
    strip.press(filter.states);
    arrange();
  });
  const search = h("input", {
    type: "search", id: "filter", placeholder: "Filter", "aria-label": "Filter workloads", autocomplete: "off", spellcheck: "false",
    oninput: () => changed("text", search.value.trim().toLowerCase()),
  });
  const namespaces = h("select", { "aria-label": "Namespace", onchange: () => changed("namespace", namespaces.value) });
  const reasons = h("select", { "aria-label": "Reason", onchange: () => changed("reason", reasons.value) },
    h("option", { value: "" }, "all reasons"),
    words.reasons.map((word) => h("option", { value: word.code }, word.word)));
  const clear = h("button", { type: "button", class: "quiet", hidden: true, onclick: () => unfilter() }, "clear");
  const counted = h("p", { class: "counted", role: "status" });
  const heads = new Map(COLUMNS.map((column) => [column.name, h("th", { scope: "col", role: "columnheader", class: column.name },
    h("button", { type: "button", onclick: () => sortBy(column.name) }, column.label))]));
  const above = h("tr", { class: "spacer", "aria-hidden": "true" }, h("td"));
  const below = h("tr", { class: "spacer", "aria-hidden": "true" }, h("td"));
  const body = h("tbody", { role: "rowgroup" }, above, below);
  const table = h("table", { role: "table", class: "workloads" },
    h("caption", { class: "hidden" }, "Workloads by severity"),
    h("thead", { role: "rowgroup" }, h("tr", { role: "row", "aria-rowindex": 1 }, [...heads.values()])), body);
  const nothing = h("p", { class: "nothing", hidden: true });
  const element = h("div", { class: "fleet" }, h("h1", { class: "hidden" }, "Workloads"), strip.element,
    h("form", { class: "filters", role: "search", onsubmit: (event) => event.preventDefault() }, search, namespaces, reasons, clear, counted),
    table, nothing);

  function changed(name, value) {
    filter[name] = value;
    arrange();
  }

  function unfilter() {
    Object.assign(filter, { text: "", namespace: "", reason: "" });
    filter.states.clear();
    search.value = namespaces.value = reasons.value = "";
    strip.press(filter.states);
    arrange();
  }

  function sortBy(name) {
    order.down = order.column === name ? !order.down : name !== "workload" && name !== "state";
    order.column = name;
    arrange();
  }

  const passes = (row) =>
    (!filter.namespace || row.namespace === filter.namespace) &&
    (!filter.reason || row.reason === filter.reason) &&
    (!filter.states.size || filter.states.has(row.state)) &&
    (!filter.text || `${row.namespace}/${row.name}/${row.trigger} ${row.why} ${row.hindered_by ?? ""}`.toLowerCase().includes(filter.text));

  function arrange() {
    rows = shown.workloads.filter(passes);
    const sort = COLUMNS.find((column) => column.name === order.column).sort;
    if (sort) rows = sorted(rows, sort, order.down);
    else if (order.down) rows.reverse();
    for (const [name, head] of heads) {
      mark(head, "aria-sort", name === order.column ? (order.down ? "descending" : "ascending") : null);
    }
    const all = shown.workloads.length;
    const filtered = Boolean(filter.text || filter.namespace || filter.reason || filter.states.size);
    clear.hidden = !filtered;
    say(counted, filtered ? `${format.count(rows.length)} of ${workloads(all)}` : workloads(all));
    nothing.hidden = rows.length > 0;
    say(nothing, all ? "No workload matches the filters." : "No workload is on the Board yet.");
    table.hidden = !rows.length;
    mark(table, "aria-rowcount", rows.length + 1);
    draw();
  }

  const rowHeight = () => parseFloat(getComputedStyle(table).getPropertyValue("--row"));

  function draw() {
    if (!element.isConnected) return;
    const height = rowHeight();
    const top = body.getBoundingClientRect().top;
    const first = Math.max(0, Math.min(rows.length, Math.floor(-top / height) - OVERSCAN));
    const last = Math.min(rows.length, Math.max(first, Math.ceil((window.innerHeight - top) / height) + OVERSCAN));
    const view = rows.slice(first, last);
    const keys = new Set(view.map(keyOf));
    for (const [key, parts] of drawn) {
      if (keys.has(key)) continue;
      parts.tr.remove();
      drawn.delete(key);
    }
    above.firstChild.style.height = `${first * height}px`;
    below.firstChild.style.height = `${(rows.length - last) * height}px`;
    let after = above;
    view.forEach((row, place) => {
      const key = keyOf(row);
      let parts = drawn.get(key);
      if (!parts) {
        parts = newRow(row);
        drawn.set(key, parts);
      }
      fill(parts, row, first + place);
      placeAfter(parts.tr, after);
      after = parts.tr;
    });
    wanted(view, rows.length);
  }

  // Moving an element takes its focus away, so the other rows are moved around the one that has it.
  function placeAfter(tr, after) {
    if (after.nextSibling === tr) return;
    if (!tr.isConnected || !tr.contains(document.activeElement)) after.after(tr);
    else while (after.nextSibling !== tr) below.before(after.nextSibling);
  }

  function newRow(row) {
    const parts = { row, sparks: {}, link: h("a", { href: hashOf(row), onfocus: () => (selected = keyOf(row)) }) };
    parts.link.append(h("span", { class: "namespace" }, `${row.namespace}/`),
      h("span", { class: "name" }, row.trigger ? `${row.name}/${row.trigger}` : row.name));
    const cells = Object.fromEntries(COLUMNS.slice(1).map((column) => [column.name, h("td", { role: "cell", class: column.name })]));
    parts.word = h("span", { class: "word" });
    parts.hindered = h("span", { class: "chip" });
    parts.observed = h("span", { class: "chip quiet", title: "only observed: its number is not published to KEDA and the HPA" }, "observed");
    parts.notes = h("span", { class: "chip quiet" });
    parts.why = h("span", { class: "why" });
    parts.sign = h("span", { class: "sign-place" });
    cells.state.append(h("span", { class: "line" }, parts.sign, parts.word, parts.hindered, parts.observed, parts.notes), parts.why);
    for (const name of ["replicas", "load", "gpu"]) {
      parts[name] = h("span", { class: "number" });
      parts.sparks[name] = h("span", { class: "spark-place" });
      cells[name].append(h("span", { class: "pair" }, parts[name], parts.sparks[name]));
    }
    parts.demand = cells.demand;
    parts.age = cells.age;
    parts.tr = h("tr", { role: "row", onclick: (event) => event.target.closest("a, button") || (location.hash = hashOf(row)) },
      h("th", { scope: "row", role: "rowheader", class: "workload" }, parts.link), Object.values(cells));
    return parts;
  }

  function fill(parts, row, index) {
    const state = stateWords.get(row.state) ?? plain(row.state);
    const reason = reasonWords.get(row.reason) ?? plain(row.reason);
    mark(parts.tr, "aria-rowindex", index + 2);
    if (parts.tr.dataset.state !== row.state) parts.sign.replaceChildren(sign(row.state));
    mark(parts.tr, "data-state", row.state);
    mark(parts.tr, "data-severity", row.severity);
    say(parts.word, state.word);
    mark(parts.word, "title", state.meaning);
    showObstacle(parts.hindered, row, hindrances);
    parts.observed.hidden = !row.observed;
    parts.notes.hidden = !row.notes.length;
    say(parts.notes, row.notes.length === 1 ? "1 note" : `${row.notes.length} notes`);
    mark(parts.notes, "title", row.notes.join("\n"));
    showReason(parts.why, row, reason);
    number(parts.replicas, format.shift(row.cluster, row.published), row.published);
    mark(parts.replicas, "data-moves", row.cluster !== null && row.published !== null && row.cluster !== row.published ? "" : null);
    number(parts.load, format.count(row.load), row.load);
    number(parts.demand, format.count(row.demand), row.demand);
    number(parts.gpu, format.ratio(row.gpu), row.gpu);
    number(parts.age, format.age(row, shown.now), row.held_since ?? row.measured_at);
    sparks(parts, row);
  }

  function sparks(parts, row) {
    const series = of(row);
    if (parts.series === series && shown.now - parts.drawnAt < REDRAWN_S) return;
    Object.assign(parts, { series, drawnAt: shown.now });
    for (const name of ["replicas", "load", "gpu"]) {
      parts.sparks[name].replaceChildren(...(series ? [spark[name](series, shown.now)] : []));
    }
  }

  function options() {
    const names = [...new Set(shown.workloads.map((row) => row.namespace))].sort();
    if (namespaces.dataset.names === JSON.stringify(names)) return;
    namespaces.dataset.names = JSON.stringify(names);
    namespaces.replaceChildren(h("option", { value: "" }, "all namespaces"), ...names.map((name) => h("option", { value: name }, name)));
    if (!names.includes(filter.namespace)) filter.namespace = "";
    namespaces.value = filter.namespace;
  }

  // Selects a row and scrolls it into view.
  function select(index) {
    const place = Math.max(0, Math.min(rows.length - 1, index));
    if (!rows[place]) return;
    selected = keyOf(rows[place]);
    const height = rowHeight();
    const head = table.tHead.offsetHeight;
    const top = body.getBoundingClientRect().top + place * height;
    if (top < head) window.scrollBy(0, top - head);
    else if (top + height > window.innerHeight) window.scrollBy(0, top + height - window.innerHeight);
    draw();
    drawn.get(selected)?.link.focus({ preventScroll: true });
  }

  const at = () => rows.findIndex((row) => keyOf(row) === selected);
  const page = () => Math.max(1, Math.floor(window.innerHeight / rowHeight()) - 2);
  const moves = {
    j: () => select(at() + 1), ArrowDown: () => select(at() + 1),
    k: () => select(at() - 1), ArrowUp: () => select(at() - 1),
    PageDown: () => select(at() + page()), PageUp: () => select(at() - page()),
    Home: () => select(0), End: () => select(rows.length - 1),
    "/": () => search.select(),
  };

  return {
    element,
    draw,
    title: "Tidegate",
    show(document) {
      shown = document;
      strip.show(document.fleet);
      options();
      arrange();
    },
    accounts: (document) => strip.accounts(document),
    // Was the key one of ours?
    key(event) {
      if (event.target === search) {
        if (event.key === "Escape") {
          unfilter();
          search.blur();
        } else if (event.key === "Enter" || event.key === "ArrowDown") select(0);
        else return false;
        return true;
      }
      if (event.key === "Escape" && !clear.hidden) unfilter();
      else if (moves[event.key] && event.target.tagName !== "SELECT") moves[event.key]();
      else return false;
      return true;
    },
    opened() {
      if (at() >= 0) select(at());
    },
  };
}

const workloads = (many) => `${format.count(many)} workload${many === 1 ? "" : "s"}`;

// Unknown says nothing about what is large or small, so it comes last either way.
function sorted(rows, sort, down) {
  const compared = (a, b) => (typeof a === "string" ? a.localeCompare(b) : a - b);
  return rows
    .map((row) => [sort(row) ?? null, row])
    .sort(([a], [b]) => (a === null || b === null ? (a === null) - (b === null) : (down ? -1 : 1) * compared(a, b)))
    .map(([, row]) => row);
}

function number(element, text, value) {
  say(element, text);
  mark(element, "data-unknown", format.isKnown(value) ? null : "");
}

// GPUs as numbers; workloads as a bar of states, which filters.
function fleetStrip(stateWords, press) {
  const gpus = h("dl", { class: "gpus" });
  const bar = h("div", { class: "tide", role: "group", "aria-label": "Workloads by state" });
  const segments = new Map();
  for (const [code, word] of stateWords) {
    const number = h("span", { class: "amount" });
    const button = h("button", { type: "button", "data-state": code, "aria-pressed": "false", title: word.meaning, onclick: () => press(code) },
      h("span", { class: "fill" }), h("span", { class: "text" }, sign(code), number, h("span", {}, word.word)));
    segments.set(code, { button, number });
    bar.append(button);
  }
  const figures = new Map();
  const uncounted = h("p", { class: "of uncounted", hidden: true });

  function figure(name, label, value, title, state) {
    let parts = figures.get(name);
    if (!parts) {
      parts = { dd: h("dd"), dt: h("dt", {}, state ? sign(state) : null, label) };
      figures.set(name, parts);
      gpus.append(h("div", { title, "data-state": state }, parts.dt, parts.dd));
    }
    number(parts.dd, value === null ? format.UNKNOWN : value, value);
  }

  return {
    element: h("section", { class: "summary", "aria-label": "The fleet" }, h("div", { class: "figures" }, gpus, uncounted), bar),
    press(states) {
      for (const [code, { button }] of segments) mark(button, "aria-pressed", states.has(code));
    },
    show(fleet) {
      for (const [code, { button, number: amount }] of segments) {
        const many = fleet.workloads[code] ?? 0;
        say(amount, format.count(many));
        button.hidden = many === 0 && button.getAttribute("aria-pressed") !== "true";
        button.style.flexGrow = Math.max(1, many);
      }
      const counted = Object.values(fleet.gpus).reduce((sum, each) => sum + each, 0);
      // If no number of GPUs is known, the sums are unknown, not 0.
      const of = (...states) => (counted === 0 && fleet.uncounted > 0 ? null : format.count(states.reduce((sum, state) => sum + fleet.gpus[state], 0)));
      figure("serving", "GPUs in use", of("serving"), "held by workloads that serve requests", "serving");
      figure("idle", "idle, warm", of("idle_warm"), "held by workloads that are ready and have nothing to do", "idle_warm");
      figure("starting", "starting", of("loading", "pending"), "held by workloads without a ready replica", "loading");
      figure("unknown", "unknown use", of("unknown"), "held by workloads with stale readings", "unknown");
      uncounted.hidden = !fleet.uncounted;
      say(uncounted, fleet.uncounted === 1 ? "Without one workload: its number of GPUs is unknown." : `Without ${format.count(fleet.uncounted)} workloads: their numbers of GPUs are unknown.`);
    },
    accounts(document) {
      const slept = document.workloads.map((each) => each.gpu_seconds?.asleep).filter(format.isKnown);
      if (!slept.length) return;
      const since = document.since ? `since ${format.moment(document.since)}` : null;
      figure("asleep", "GPU-hours asleep", format.gpuHours(slept.reduce((sum, each) => sum + each, 0)), since, "asleep");
    },
  };
}
