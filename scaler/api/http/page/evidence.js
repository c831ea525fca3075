// The evidence of a decision, with units. Unknown fields are shown unformatted.

import { h } from "./dom.js";
import * as format from "./format.js";

const text = (value) => String(value);
const seconds = (value) => format.span(value);
const exact = (value) => `${Math.floor(value * 1000 + 1e-6) / 10} %`; // 99.96 % is not all
const GROUPS = [
  ["Requests", {
    waiting: ["waiting", format.count], running: ["in progress", format.count], held_by_gateway: ["held by the gateway", format.count],
    requests_per_second: ["finished per second", (value) => String(Number(value.toPrecision(3)))], kv_cache_used: ["KV cache used", format.ratio],
  }],
  ["SLO", {
    slo: ["the last 3 days", text], slo_attainment_hour: ["met in the last hour", exact], slo_attainment_least: ["at least, by the buckets", exact],
    slo_attainment_most: ["at most", exact], request_replica_s: ["replica-seconds per request", (value) => String(Number(value.toPrecision(3)))],
    step_s: ["empty decode step", (value) => `${Number((value * 1000).toPrecision(3))} ms`], headroom_times: ["headroom, times", (value) => String(Number(value.toPrecision(3)))], burst_replicas: ["kept for a burst", format.count],
  }],
  ["Replicas", {
    replicas_wanted: ["spec.replicas", format.count], replicas_ready: ["ready", format.count],
    replicas_pending: ["without a node", format.count], replicas_sleeping: ["in sleep mode", format.count],
    sleep_tier: ["sleep mode", text], sleep: ["sleep, by cost", text], sleep_after_s: ["idle before sleep", seconds], wake_s: ["wake, median", seconds],
    gpu_share_replicas: ["its share of the GPUs", format.count],
  }],
  ["GPUs", {
    gpus_held: ["requested by its running pods", format.count], gpus_attributed: ["shown by targets as its own", format.count], gpus_lost: ["lost", format.count],
    gpu_engine_active: ["activity", format.ratio], gpu_activity: ["measured by", text], gpu_engine_ceiling: ["highest possible activity", format.ratio],
    gpu_memory_held_bytes: ["memory held", format.bytes],
  }],
  ["Scale to zero", {
    wake_source: ["wake source", text], probe_period_s: ["probes, one each", seconds],
    regular_requests_count_until: ["regular requests count until", format.moment], keep_warm_s: ["keep-warm time", seconds], starts_again_at: ["next predicted start", format.moment],
    cold_start_p50_s: ["cold start, median", seconds], cold_start_p90_s: ["cold start, p90", seconds],
    cold_start_requests: ["requests that a cold start delays", format.count], cold_starts_covered: ["cold starts within the error budget", format.count],
    keep_warm_saves_gpu_seconds: ["learned keep-warm time saves per day", (value) => `${format.count(value / 3600)} GPU-h`],
    keep_warm_saves_money: ["in money per day", format.count],
  }],
  ["Overrides", {
    brake: ["brake", text], brake_until: ["until", format.moment], schedule: ["schedule", text],
    schedule_floor: ["at least", format.count], schedule_ceiling: ["at most", format.count],
  }],
];
const ALWAYS = new Set(["waiting", "running", "replicas_wanted", "replicas_ready", "gpu_engine_active", "wake_source"]);
const LISTS = new Set(["objectives", "stale", "incomplete", "notes"]);
const UNSHOWN = ["slo_attainment", "slo_error_budget", "slo_requests_total", "slo_misses_total"]; // the sentence has them
const KNOWN = new Set(UNSHOWN.concat(GROUPS.flatMap(([, fields]) => Object.keys(fields))));
const UNITS = { slo: format.count, work: format.count, kv_cache: format.ratio, gpu_engine: format.ratio };
const LABELS = { slo: "slo: arriving work, in replicas" };

// The children of its panel. decision: one entry of the Board; now: the server's POSIX seconds.
export function decidedOn(decision, now) {
  const evidence = decision.evidence;
  const more = Object.keys(evidence).filter((name) => !KNOWN.has(name) && !LISTS.has(name) && evidence[name] !== null);
  const groups = [...GROUPS, ["More", Object.fromEntries(more.map((name) => [name, [name.replaceAll("_", " "), plain]]))]];
  return [
    h("header", {}, h("h2", {}, "Evidence")),
    evidence.notes.length ? h("ul", { class: "notes" }, evidence.notes.map((note) => h("li", {}, note))) : null,
    evidence.stale.length ? h("ul", { class: "notes stale" }, evidence.stale.map((source) => h("li", {}, `no fresh readings from ${source}`))) : null,
    evidence.incomplete?.length ? h("ul", { class: "notes stale" }, evidence.incomplete.map((series) => h("li", {}, `lower bound: ${series}`))) : null,
    objectives(evidence.objectives),
    h("dl", { class: "facts" }, [
      // An HPA ignores a small step up, within its tolerance: then a larger number is published.
      (decision.published ?? decision.replicas) === decision.replicas ? null : fact("replicas decided, published", `${format.count(decision.replicas)}, ${format.count(decision.published)}`),
      fact("unchanged for", format.span(now - decision.decided_at)),
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
      if (name === "wake_source" && value === null) return fact(label, "none");
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
      return h("tr", {}, h("th", { scope: "row" }, LABELS[each.name] ?? each.name.replaceAll("_", " ")), cell(each.value, say), cell(each.target, say), cell(each.replicas, format.count));
    })));
}
