// All workloads: sums, filters, and a table of which only the rows in view exist.

import { h, mark, number, plain, say, showObstacle, showReason, sign } from "./dom.js";
import * as format from "./format.js";
import { hashOf, keyOf } from "./api.js";
import { findingsPanel } from "./findings.js";
import * as spark from "./spark.js";
import { fleetStrip } from "./strip.js";

const OVERSCAN = 8; // rows above and below the view, so that scrolling shows no gaps
const REDRAWN_S = 5; // a sparkline moves by a pixel in half a minute

const COLUMNS = [
  { name: "workload", label: "Workload", sort: (row) => `${row.namespace}/${row.name}/${row.trigger}` },
  { name: "state", label: "State and reason", sort: null }, // the order of the server: by severity
  { name: "replicas", label: "Replicas", title: "of the cluster → published by Tidegate", sort: (row) => row.published },
  { name: "load", label: "Requests", title: "waiting, running, or held by the gateway", sort: (row) => row.load },
  { name: "demand", label: "Needed", title: "replicas that the load needs, before rounding and bounds", sort: (row) => row.demand },
  { name: "gpu", label: "GPU activity", title: "mean over its GPUs", sort: (row) => row.gpu },
  { name: "age", label: "Data age", title: "age of the oldest reading", sort: (row) => (row.held_since ?? row.measured_at) * -1 || null },
];

const ROOMY = 40; // workloads: so few have rows of two lines, for the whole reason

// words: of `words.json`. wanted: called with the rows in view after each drawing. of: the history of a row, or null.
// begin: when the oldest history in memory begins, POSIX seconds.
export function fleetView(words, { wanted, of, begin }) {
  const stateWords = new Map(words.states.map((word) => [word.code, word]));
  const reasonWords = new Map(words.reasons.map((word) => [word.code, word]));
  const hindrances = new Map((words.hindrances ?? []).map((word) => [word.code, word]));
  const filter = { text: "", namespace: "", team: "", node: "", reason: "", awake: false, states: new Set() };
  let teams = new Map(); // key -> team, of the accounts
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
  const findings = findingsPanel();
  const search = h("input", {
    type: "search", id: "filter", placeholder: "Filter", "aria-label": "Filter workloads", autocomplete: "off", spellcheck: "false",
    oninput: () => changed("text", search.value.trim().toLowerCase()),
  });
  // Filters with the values that occur; one with less than two values is hidden.
  const choices = {
    namespace: choice("namespace", (row) => [row.namespace]),
    team: choice("team", (row) => [teams.get(keyOf(row))]),
    node: choice("node", (row) => row.nodes ?? []),
    reason: choice("reason", (row) => [row.reason], (code) => (reasonWords.get(code) ?? plain(code)).word),
  };
  const awake = h("button", { type: "button", class: "quiet", "aria-pressed": "false", onclick: () => changed("awake", !filter.awake) }, "hide asleep");
  const clear = h("button", { type: "button", class: "quiet", hidden: true, onclick: () => unfilter() }, "clear");
  const counted = h("p", { class: "counted", role: "status" });
  const charted = h("p", { class: "of" }); // the time axis of the small charts
  const heads = new Map(COLUMNS.map((column) => [column.name, h("th", { scope: "col", role: "columnheader", class: column.name, title: column.title },
    h("button", { type: "button", onclick: () => sortBy(column.name) }, column.label))]));
  const above = h("tr", { class: "spacer", "aria-hidden": "true" }, h("td"));
  const below = h("tr", { class: "spacer", "aria-hidden": "true" }, h("td"));
  const body = h("tbody", { role: "rowgroup" }, above, below);
  const table = h("table", { role: "table", class: "workloads" },
    h("caption", { class: "hidden" }, "Workloads by severity"),
    h("thead", { role: "rowgroup" }, h("tr", { role: "row", "aria-rowindex": 1 }, [...heads.values()])), body);
  const nothing = h("p", { class: "nothing", hidden: true });
  const element = h("div", { class: "fleet" }, h("h1", { class: "hidden" }, "Workloads"), strip.element, findings.element,
    h("form", { class: "filters", role: "search", onsubmit: (event) => event.preventDefault() }, search, Object.values(choices).map((each) => each.element), awake, clear, h("div", { class: "counts" }, charted, counted)),
    table, nothing);

  function changed(name, value) {
    filter[name] = value;
    arrange();
  }

  function unfilter() {
    Object.assign(filter, { text: "", namespace: "", team: "", node: "", reason: "", awake: false });
    filter.states.clear();
    for (const element of [search, ...Object.values(choices).map((each) => each.element)]) element.value = "";
    strip.press(filter.states);
    arrange();
  }

  function sortBy(name) {
    order.down = order.column === name ? !order.down : name !== "workload" && name !== "state";
    order.column = name;
    arrange();
  }

  const passes = (row) =>
    Object.entries(choices).every(([name, each]) => !filter[name] || each.values(row).includes(filter[name])) &&
    (!filter.awake || row.state !== "asleep") &&
    (!filter.states.size || filter.states.has(row.state)) &&
    (!filter.text || `${row.namespace}/${row.name}/${row.trigger} ${row.why} ${row.hindered_by ?? ""} ${row.nodes?.join(" ") ?? ""}`.toLowerCase().includes(filter.text));

  function arrange() {
    rows = shown.workloads.filter(passes);
    const sort = COLUMNS.find((column) => column.name === order.column).sort;
    if (sort) rows = sorted(rows, sort, order.down);
    else if (order.down) rows.reverse();
    for (const [name, head] of heads) {
      mark(head, "aria-sort", name === order.column ? (order.down ? "descending" : "ascending") : null);
    }
    const all = shown.workloads.length;
    const filtered = Object.values(filter).some((value) => (value instanceof Set ? value.size : value));
    clear.hidden = !filtered;
    mark(awake, "aria-pressed", filter.awake);
    mark(table, "data-roomy", rows.length <= ROOMY ? "" : null);
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
    const since = begin(shown.now);
    say(charted, since === null ? "" : `charts: last ${spark.lately(shown.now - since)}`);
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
    const noGpu = row.state === "asleep" && !format.isKnown(row.gpu);
    number(parts.gpu, noGpu ? "none" : format.ratio(row.gpu), noGpu ? 0 : row.gpu);
    number(parts.age, format.age(row, shown.now), row.held_since ?? row.measured_at);
    sparks(parts, row);
  }

  function sparks(parts, row) {
    const series = of(row);
    if (parts.series === series && shown.now - parts.drawnAt < REDRAWN_S) return;
    Object.assign(parts, { series, drawnAt: shown.now });
    for (const name of ["replicas", "load", "gpu"]) {
      parts.sparks[name].replaceChildren(...(series ? [spark[name](series, begin(shown.now), shown.now)] : []));
    }
  }

  function choice(name, values, label = (value) => value) {
    const element = h("select", { "aria-label": name, onchange: () => changed(name, element.value) });
    let listed = null;
    const list = () => {
      const names = [...new Set(shown.workloads.flatMap(values).filter(format.isKnown))].sort();
      if (listed === (listed = JSON.stringify(names))) return;
      element.hidden = names.length < 2;
      element.replaceChildren(h("option", { value: "" }, `all ${name}s`), ...names.map((each) => h("option", { value: each }, label(each))));
      if (!names.includes(filter[name])) filter[name] = "";
      element.value = filter[name];
    };
    return { element, values, list };
  }

  const options = () => Object.values(choices).forEach((each) => each.list());

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
      findings.show(document);
      options();
      arrange();
    },
    accounts(document) {
      strip.accounts(document);
      teams = new Map(document.workloads.filter((each) => each.team).map((each) => [keyOf(each), each.team]));
      options();
    },
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
