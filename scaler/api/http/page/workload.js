// One workload: its charts, evidence, explanation and GPU-hours.

import { get, grafanaOf, hashOf, keyOf, objectOf, pathOf } from "./api.js";
import { chart, reasonBand } from "./chart.js";
import { h, mark, plain, say, showObstacle, showReason, sign } from "./dom.js";
import * as format from "./format.js";
import { seriesOf } from "./history.js";
import { decidedOn } from "./evidence.js";

const SPANS = [[900, "15 min"], [3600, "1 h"], [21600, "6 h"], [86400, "24 h"]];
const SLOW_MS = 5_000; // the charts; head, evidence and steps come with every poll, in one document
const POINTS = 480;
const LONG = 40; // letters: longer texts are broken into lines, shorter ones never
const SHORTEST_S = 900; // of an axis, where less data exists

export function workloadView(words, workload) {
  const stateWords = new Map(words.states.map((word) => [word.code, word]));
  const reasonWords = new Map(words.reasons.map((word) => [word.code, word]));
  const hindrances = new Map((words.hindrances ?? []).map((word) => [word.code, word]));
  let since = 3600;
  let series = null;
  let slowAt = -Infinity;
  let gone = false;
  let latest = null; // the changes that are drawn: the list keeps its place while it is scrolled
  let asking = false;

  const live = h("p", { class: "hidden", role: "status" });
  const read = (place) => {
    charts.forEach((each) => each.read(place));
    if (document.activeElement?.classList.contains("canvas")) say(live, charts.map((each) => each.words()).join(". "));
  };
  const charts = [
    chart({ title: "Requests", unit: "waiting, running or held", say: format.count, lines: [{ name: "load", key: "load", label: "requests", area: true }] }, read),
    chart({ title: "Replicas", unit: "replicas", say: format.count, lines: [
      { name: "actual", key: "actual", label: "running", area: true, step: true },
      { name: "demand", key: "demand", label: "demand" },
      { name: "answer", key: "replicas", label: "published", step: true }] }, read),
    chart({ title: "GPU activity", unit: "of its GPUs, mean", say: format.ratio, top: 1, lines: [{ name: "gpu", key: "gpu", label: "activity", area: true }] }, read),
  ];
  const signPlace = h("span", { class: "sign-place" });
  const word = h("span", { class: "word" });
  const obstacle = h("span", { class: "chip" });
  const obstacleText = h("p", { class: "why", hidden: true });
  const observed = h("span", { class: "chip quiet", hidden: true }, "observed: not published");
  const why = h("p", { class: "why" });
  const links = h("p", { class: "links" });
  const shift = h("span", { class: "figure" });
  const ready = h("span", { class: "under" });
  const spans = h("div", { class: "spans", role: "group", "aria-label": "Time span" }, SPANS.map(([seconds, label]) =>
    h("button", { type: "button", class: "quiet", "aria-pressed": String(seconds === since), "data-since": seconds, onclick: () => look(seconds) }, label)));
  const band = h("div", { class: "band-place" });
  const past = h("section", { class: "panel past", hidden: true }, h("header", {}, h("h2", {}, "Over time"), spans), charts.map((each) => each.element), band);
  const explained = h("section", { class: "panel explained", hidden: true });
  const changes = h("section", { class: "panel changes", hidden: true });
  const evidence = h("section", { class: "panel evidence" });
  const scores = h("section", { class: "panel scores", hidden: true });
  const command = `tidegate explain ${quoted(`${workload.namespace}/${workload.name}`)} --server ${quoted(location.origin + location.pathname.replace(/\/$/, ""))}`;
  const copy = h("button", { type: "button", class: "quiet", onclick: copied }, "copy");
  const code = h("code", { tabindex: 0 }, command);
  const missing = h("p", { class: "nothing", hidden: true });
  const content = h("div", { class: "columns" }, h("div", {}, past, explained), h("div", {}, evidence, scores, changes));
  const element = h("article", { class: "workload-view" },
    h("nav", { "aria-label": "Breadcrumb" }, h("a", { href: "#/" }, "← all workloads")),
    h("header", { class: "title" },
      h("div", {}, h("h1", { tabindex: -1 }, h("span", { class: "namespace" }, `${workload.namespace}/`), workload.trigger ? `${workload.name}/${workload.trigger}` : workload.name),
        h("p", { class: "line" }, signPlace, word, obstacle, observed), why, obstacleText, links),
      h("p", { class: "answer" }, shift, ready)),
    missing, content, h("p", { class: "command" }, code, copy), live);

  async function copied() {
    try {
      await navigator.clipboard.writeText(command);
      say(copy, "copied");
    } catch {
      getSelection().selectAllChildren(code); // no clipboard without https or localhost: the text is selected instead
      say(copy, "selected");
    }
  }

  function look(seconds) {
    since = seconds;
    for (const button of spans.children) mark(button, "aria-pressed", Number(button.dataset.since) === since);
    slowAt = -Infinity;
    slow();
  }

  function head(row, now) {
    mark(element, "data-state", row.state);
    mark(element, "data-severity", row.severity);
    signPlace.replaceChildren(sign(row.state));
    const state = stateWords.get(row.state);
    const given = reasonWords.get(row.reason);
    say(word, state?.word ?? row.state);
    mark(word, "title", state?.meaning);
    observed.hidden = !row.observed;
    showReason(why, row, given ?? plain(row.reason));
    showObstacle(obstacle, row, hindrances);
    obstacleText.hidden = !row.hindered_by;
    say(obstacleText, row.hindered_by ?? "");
    say(shift, format.shift(row.cluster, row.published));
    mark(shift, "data-unknown", format.isKnown(row.published) ? null : "");
    const age = format.age(row, now);
    const ago = format.isKnown(row.held_since) ? age : age === format.UNKNOWN ? "age unknown" : `readings ${age} old`;
    say(ready, `replicas, ${row.ready === null ? "ready: unknown" : `${format.count(row.ready)} ready`}, ${ago}`);
  }

  async function slow() {
    if (performance.now() - slowAt < SLOW_MS) return;
    slowAt = performance.now();
    await Promise.allSettled([history()]);
  }

  // Head, evidence and steps are of one document, so that no two numbers contradict each other. A server without
  // explanations has the row and the evidence alone.
  async function decision(board) {
    if (asking) return;
    asking = true;
    try {
      const given = await explanation();
      if (given?.row && workload.at === null) {
        head(given.row, given.now);
        evidence.replaceChildren(...decidedOn(given.answer, given.now));
      } else {
        head(board.workloads.find((each) => keyOf(each) === keyOf(workload)), board.now);
        await entry();
      }
    } catch {
      // the poll of the rows reports it
    } finally {
      asking = false;
    }
  }

  async function history() {
    const wished = since;
    const { status, document } = await get(pathOf("api/v1/history", workload, { points: POINTS, since: wished }));
    if (status !== 200 || wished !== since) return;
    [series] = seriesOf(document, workload);
    past.hidden = !series;
    if (!series) return;
    const from = Math.max(document.now - since, Math.min(series.at[0] ?? document.now, document.now - SHORTEST_S));
    charts.forEach((each) => each.show(series, from, document.now));
    band.replaceChildren(reasonBand(series, from, document.now, reasonWords));
  }

  async function explanation() {
    const query = workload.at === null ? {} : { at: workload.at };
    const { status, document } = await get(pathOf("api/v1/explain", workload, query));
    if (status !== 200) return null;
    explained.hidden = false;
    explained.replaceChildren(...chain(document, workload));
    changes.hidden = !document.changes?.length;
    if (latest !== (latest = JSON.stringify(document.changes))) changes.replaceChildren(...timeline(document.changes ?? [], workload, reasonWords));
    return document;
  }

  async function entry() {
    const { status, document } = await get(pathOf("api/v1/board", workload));
    const mine = document?.workloads.find((each) => keyOf(each.workload) === keyOf(workload));
    if (status === 200 && mine) evidence.replaceChildren(...decidedOn(mine, document.now));
  }

  return {
    element,
    title: `${workload.namespace}/${workload.name} · Tidegate`,
    draw: () => {
      charts.forEach((each) => each.draw());
      slow();
    },
    show(document) {
      const row = document.workloads.find((each) => keyOf(each) === keyOf(workload));
      gone = !row;
      missing.hidden = !gone;
      content.hidden = gone;
      say(missing, gone ? "This workload is not on the Board: neither in the configuration nor in the cluster." : "");
      if (!row) return;
      const found = linksOf(document.links, row);
      if (found.some((each, place) => each.href !== links.children[place]?.href)) links.replaceChildren(...found); // keeps focus
      if (!element.dataset.state) head(row, document.now); // until the explanation comes
      decision(document);
      slow();
    },
    accounts(document) {
      const mine = document.workloads.find((each) => keyOf(each) === keyOf(workload));
      scores.hidden = !mine;
      if (mine) scores.replaceChildren(...costs(mine, document.since, stateWords));
    },
    key(event) {
      if (event.key !== "Escape") return false;
      location.hash = workload.at === null ? "#/" : hashOf(workload);
      return true;
    },
    opened: () => element.querySelector("h1").focus({ preventScroll: true }),
  };
}

// Links to the dashboard and to the scaled object, where they are configured.
function linksOf(links, row) {
  return [
    links.grafana && h("a", { href: grafanaOf(links, "tidegate-workload", row), rel: "noreferrer" }, "Grafana"),
    links.object && row.kind && h("a", { href: objectOf(links, row), rel: "noreferrer" }, `${row.kind} ${row.object}`),
  ].filter(Boolean);
}

// Quotes what a shell would split.
const quoted = (text) => (/^[\w./:@%+=-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`);

// The explanation, step by step. This page knows no step by name.
function chain(document, workload) {
  const of = workload.at === null ? null : h("p", { class: "of" }, `the decision of ${format.moment(document.at)}; head and evidence are newer `, h("a", { href: hashOf(workload) }, "back to now"));
  return [
    h("header", {}, h("h2", {}, "Explanation"), of),
    document.follows ? h("p", { class: "of" }, `the decision of the leader at ${document.follows}`) : null,
    h("p", { class: "summary-line" }, document.summary),
    h("ol", { class: "chain" }, (document.chain ?? []).map((step) => h("li", { "data-step": step.step }, h("h3", {}, step.title),
      (step.sentences ?? []).map((sentence) => h("p", {}, sentence)), step.table ? grid(step.table) : null))),
  ].filter((each) => each !== null);
}

function grid(table) {
  const numeric = table.columns.map((_, place) => table.rows.every((row) => row[place] === null || typeof row[place] === "number"));
  return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "table" }, h("table", { class: "grid" },
    h("thead", {}, h("tr", {}, table.columns.map((name, place) => h("th", { scope: "col", class: numeric[place] ? "num" : null }, name)))),
    h("tbody", {}, table.rows.map((row) => h("tr", {}, row.map((value, place) => h("td", { class: numeric[place] ? "num" : String(value).length > LONG ? "long" : null }, shown(value))))))));
}

function shown(value) {
  // Unknown is common in a table of targets: a dash on screen, the word for screen readers.
  if (value === null || value === undefined) return [h("span", { "data-unknown": "", "aria-hidden": "true" }, "–"), h("span", { class: "hidden" }, format.UNKNOWN)];
  return typeof value === "number" ? figures(value) : String(value);
}

// A ratio needs its decimals, a count of requests does not.
const figures = (value) => (Number.isInteger(value) ? format.count(value) : String(Number(value.toPrecision(4))));

function timeline(entries, workload, reasonWords) {
  return [h("header", {}, h("h2", {}, "Decisions")), h("ol", { class: "timeline" }, entries.toReversed().map((entry) => {
    const word = reasonWords.get(entry.reason);
    return h("li", { "data-state": word?.state ?? "unknown", "aria-current": workload.at === entry.at ? "true" : null },
      h("a", { href: hashOf(workload, entry.at), title: "explain this decision" }, h("time", {}, format.moment(entry.at))),
      sign(word?.state ?? "unknown"), h("span", { class: "number" }, format.count(entry.replicas)), h("span", {}, word?.word ?? entry.reason));
  }))];
}

function costs(account, since, stateWords) {
  const total = Object.values(account.gpu_seconds ?? {}).filter(format.isKnown).reduce((sum, each) => sum + each, 0);
  const parts = [...stateWords].filter(([code]) => account.gpu_seconds?.[code] > 0).map(([code, word]) => {
    const share = account.gpu_seconds[code] / total;
    const fill = h("span", { class: "share" });
    fill.style.width = `${share * 100}%`;
    return h("div", { "data-state": code, title: word.meaning }, h("dt", {}, sign(code), word.word), h("dd", {}, `${format.gpuHours(account.gpu_seconds[code])} GPU-h`, h("span", { class: "under" }, format.ratio(share))), fill);
  });
  const shadow = account.shadow;
  return [
    h("header", {}, h("h2", {}, "GPU-hours"), since ? h("p", { class: "of" }, `since ${format.moment(since)}`) : null),
    h("dl", { class: "shares" }, parts),
    h("p", { class: "of" }, `scaled up from zero ${times(account.wakes)}, down to zero ${times(account.sleeps)}`),
    shadow ? h("h3", {}, "Shadow: what Tidegate would have done") : null,
    shadow ? h("dl", { class: "facts" }, [
      ["observed for", format.span(shadow.seconds)],
      ["GPU-hours saved", format.gpuHours(shadow.gpu_seconds_saved)],
      ["GPU-hours added", format.gpuHours(shadow.gpu_seconds_added)],
      ["waiting while it would have more", `${format.count(format.isKnown(shadow.queue_seconds) ? shadow.queue_seconds / 60 : null)} request-minutes`],
      ["more replicas for", format.span(shadow.more_seconds)],
      ["fewer replicas for", format.span(shadow.fewer_seconds)],
    ].map(([label, value]) => h("div", {}, h("dt", {}, label), h("dd", {}, value)))) : null,
  ].filter((each) => each !== null);
}

const times = (many) => (many === 0 ? "never" : many === 1 ? "once" : `${format.count(many)} times`);
