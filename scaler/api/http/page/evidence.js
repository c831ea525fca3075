// What a decision rests on, as facts with their units. A field that this page does not know yet is shown as it comes.

import { h } from "./dom.js";
import * as format from "./format.js";

const text = (value) => String(value);
const seconds = (value) => format.span(value);
const GROUPS = [
  ["Requests", {
    waiting: ["waiting", format.count], running: ["in work", format.count], held_by_gateway: ["held by the gateway", format.count],
    requests_per_second: ["finished per second", (value) => String(Number(value.toPrecision(3)))], kv_cache_used: ["KV cache used", format.ratio],
  }],
  ["Replicas", {
    replicas_wanted: ["the cluster was told to run", format.count], replicas_ready: ["ready", format.count],
    replicas_pending: ["without a node", format.count], replicas_sleeping: ["in sleep mode", format.count],
  }],
  ["GPUs", {
    gpus_held: ["held", format.count], gpus_seen: ["seen as its own", format.count], gpus_lost: ["lost", format.count],
    gpu_engine_active: ["activity", format.ratio], gpu_activity: ["known by", text], gpu_engine_ceiling: ["activity at most", format.ratio],
    gpu_memory_held_bytes: ["memory held", format.bytes],
  }],
  ["Zero, and back", {
    waker: ["woken by", text], probe_period_s: ["probes, one each", seconds],
    regular_requests_count_until: ["regular requests count until", format.moment], keep_warm_s: ["kept warm for", seconds], starts_again_at: ["starts again at", format.moment],
    cold_start_p50_s: ["a start takes", seconds], cold_start_p90_s: ["nine of ten take", seconds],
    keep_warm_saves_gpu_seconds: ["learned keep-warm saves a day", (value) => `${format.count(value / 3600)} GPU-h`],
    keep_warm_saves_money: ["in money a day", format.count],
  }],
  ["Orders", {
    brake: ["brake", text], brake_until: ["until", format.moment], schedule: ["schedule", text],
    schedule_floor: ["at least", format.count], schedule_ceiling: ["at most", format.count],
  }],
];
const ALWAYS = new Set(["waiting", "running", "replicas_wanted", "replicas_ready", "gpu_engine_active", "waker"]);
const LISTS = new Set(["objectives", "stale", "incomplete", "notes"]);
const KNOWN = new Set(GROUPS.flatMap(([, fields]) => Object.keys(fields)));
const UNITS = { work: format.count, kv_cache: format.ratio, gpu_engine: format.ratio };

// The children of its panel. decision: one entry of the Board; now: the server's POSIX seconds.
export function decidedOn(decision, now) {
  const evidence = decision.evidence;
  const more = Object.keys(evidence).filter((name) => !KNOWN.has(name) && !LISTS.has(name) && evidence[name] !== null);
  const groups = [...GROUPS, ["More", Object.fromEntries(more.map((name) => [name, [name.replaceAll("_", " "), plain]]))]];
  return [
    h("header", {}, h("h2", {}, "What it rests on")),
    evidence.notes.length ? h("ul", { class: "notes" }, evidence.notes.map((note) => h("li", {}, note))) : null,
    evidence.stale.length ? h("ul", { class: "notes stale" }, evidence.stale.map((source) => h("li", {}, `no answer from ${source}`))) : null,
    evidence.incomplete?.length ? h("ul", { class: "notes stale" }, evidence.incomplete.map((series) => h("li", {}, `a lower bound: ${series}`))) : null,
    objectives(evidence.objectives),
    h("dl", { class: "facts" }, [
      // An HPA with a tolerance drops a small step up: then it is told a larger number.
      (decision.told ?? decision.replicas) === decision.replicas ? null : fact("decided, and told", `${format.count(decision.replicas)}, ${format.count(decision.told)}`),
      fact("decided", `${format.span(now - decision.decided_at)} ago`),
      fact("oldest reading", decision.measured_at === null ? null : `${format.span(now - decision.measured_at)} ago`),
      decision.held_since === null ? null : fact("held since", format.moment(decision.held_since)),
      decision.idle_since === null ? null : fact("idle since", format.moment(decision.idle_since)),
    ]),
    ...groups.flatMap(([title, fields]) => group(title, fields, evidence)),
  ].filter((each) => each !== null);
}

function group(title, fields, evidence) {
  const facts = Object.entries(fields)
    .filter(([name]) => (evidence[name] ?? null) !== null || ALWAYS.has(name))
    .map(([name, [label, say]]) => {
      const value = evidence[name] ?? null;
      if (name === "waker" && value === null) return fact(label, "nothing");
      return fact(label, value === null ? null : say(value));
    });
  return facts.length ? [h("h3", {}, title), h("dl", { class: "facts" }, facts)] : [];
}

function fact(label, value) {
  return h("div", {}, h("dt", {}, label), h("dd", { "data-unknown": value === null ? "" : null }, value === null ? format.UNKNOWN : value));
}

const plain = (value) => (typeof value === "object" ? JSON.stringify(value) : String(value));

function objectives(given) {
  if (!given.length) return null;
  const cell = (value, say) => h("td", { class: "num", "data-unknown": value === null ? "" : null }, say(value));
  return h("table", { class: "grid objectives" },
    h("thead", {}, h("tr", {}, ["sized by", "now", "per replica", "replicas"].map((name, place) => h("th", { scope: "col", class: place ? "num" : null }, name)))),
    h("tbody", {}, given.map((each) => {
      const say = UNITS[each.name] ?? format.count;
      return h("tr", {}, h("th", { scope: "row" }, each.name.replaceAll("_", " ")), cell(each.value, say), cell(each.target, say), cell(each.replicas, format.count));
    })));
}
