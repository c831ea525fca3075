// The head of the page: GPUs and money as numbers; workloads as a bar of states, which filters.

import { h, mark, number, say, sign } from "./dom.js";
import * as format from "./format.js";

const HOUR_S = 3600;

export function fleetStrip(stateWords, press) {
  const gpus = h("dl", { class: "gpus" });
  const bar = h("div", { class: "tide", role: "group", "aria-label": "Workloads by state" });
  const segments = new Map();
  for (const [code, word] of stateWords) {
    const amount = h("span", { class: "amount" });
    const button = h("button", { type: "button", "data-state": code, "aria-pressed": "false", onclick: () => press(code) },
      h("span", { class: "fill" }), h("span", { class: "text" }, sign(code), amount, h("span", {}, word.word)));
    segments.set(code, { button, amount, word });
    bar.append(button);
  }
  const figures = new Map();
  const uncounted = h("p", { class: "of uncounted", hidden: true });

  function figure(name, label, value, title, state) {
    let parts = figures.get(name);
    if (!parts) {
      parts = { dd: h("dd"), dt: h("dt", {}, state ? sign(state) : null, label) };
      parts.div = h("div", { "data-state": state, class: name }, parts.dt, parts.dd);
      figures.set(name, parts);
      gpus.append(parts.div);
    }
    mark(parts.div, "title", title);
    number(parts.dd, value === null ? format.UNKNOWN : value, value);
  }

  return {
    element: h("section", { class: "summary", "aria-label": "The fleet" }, h("div", { class: "figures" }, gpus, uncounted), bar),
    press(states) {
      for (const [code, { button }] of segments) mark(button, "aria-pressed", states.has(code));
    },
    show(fleet) {
      const all = Object.values(fleet.workloads).reduce((sum, each) => sum + each, 0);
      for (const [code, { button, amount, word }] of segments) {
        const many = fleet.workloads[code] ?? 0;
        say(amount, format.count(many));
        mark(button, "title", `${format.count(many)} of ${format.count(all)} workloads: ${word.meaning}. Click to filter.`);
        button.hidden = many === 0 && button.getAttribute("aria-pressed") !== "true";
        button.style.flexGrow = Math.max(1, many);
      }
      const counted = Object.values(fleet.gpus).reduce((sum, each) => sum + each, 0);
      // If no number of GPUs is known, the sums are unknown, not 0.
      const of = (...states) => (counted === 0 && fleet.uncounted > 0 ? null : format.count(states.reduce((sum, state) => sum + fleet.gpus[state], 0)));
      figure("serving", "GPUs serving", of("serving"), "GPUs held by workloads that serve requests", "serving");
      figure("idle", "GPUs idle, warm", of("idle_warm"), "GPUs held by workloads that are ready and have nothing to do", "idle_warm");
      figure("starting", "GPUs starting", of("loading", "pending"), "GPUs held by workloads without a ready replica", "loading");
      figure("unknown", "GPUs, use unknown", of("unknown"), "GPUs held by workloads with stale readings", "unknown");
      uncounted.hidden = !fleet.uncounted;
      say(uncounted, fleet.uncounted === 1 ? "Without one workload: its number of GPUs is unknown." : `Without ${format.count(fleet.uncounted)} workloads: their numbers of GPUs are unknown.`);
    },
    accounts(document) {
      const since = document.since ? `, since ${format.moment(document.since)}` : "";
      const [, slept] = sums(document.workloads.map((each) => each.gpu_seconds));
      if (slept.total !== null) figure("asleep", "GPU-hours asleep", format.gpuHours(slept.total), `GPU-hours that sleeping workloads did not hold${since}${slept.without}`, "asleep");
      const costs = document.workloads.map((each) => costOf(each, document.gpu_hour));
      const [spent, saved] = sums(costs);
      const idle = total(costs.map((each) => each.idle_warm));
      const idled = idle === null ? "" : `, ${format.count(idle)} of it idle`;
      if (spent.total !== null) figure("spent", "spent", format.count(spent.total), `for the GPU-hours that workloads held${idled}${since}${spent.without}`);
      if (saved.total !== null) figure("saved", "saved asleep", format.count(saved.total), `for the GPU-hours asleep${since}${saved.without}${alwaysOn(document.workloads)}`);
    },
  };
}

// What always on would have cost more, in words; of the workloads with both costs.
function alwaysOn(workloads) {
  const costs = workloads.map((each) => each.baseline?.cost ?? {});
  const [most, peak] = ["maximum", "peak"].map((name) => total(costs.map((each) => (format.isKnown(each[name]) && format.isKnown(each.held) ? each[name] - each.held : null))));
  if (most === null || peak === null) return "";
  return `; always on would have cost ${format.count(most)} more with the maximum of replicas, ${format.count(peak)} more with the peak of each day`;
}

function total(values) {
  const known = values.filter((each) => format.isKnown(each));
  return known.length ? known.reduce((sum, each) => sum + each, 0) : null;
}

// The money of a workload by state: of its own price, or of the price of all GPUs. Empty without a price.
function costOf(account, gpuHour) {
  if (account.cost) return account.cost;
  const seconds = format.isKnown(gpuHour) ? Object.entries(account.gpu_seconds ?? {}) : [];
  return Object.fromEntries(seconds.map(([state, each]) => [state, format.isKnown(each) ? (each / HOUR_S) * gpuHour : null]));
}

// What workloads held, and what they did not hold asleep, of tables by state: the total, null if none is known, and how
// many workloads it is without.
function sums(tables) {
  const of = (chosen) => {
    const each = tables.map((table) => Object.entries(table ?? {}).filter(([state, value]) => chosen(state) && format.isKnown(value)).map(([, value]) => value));
    const known = each.filter((values) => values.length);
    const missing = each.length - known.length;
    return {
      total: known.length ? known.flat().reduce((total, value) => total + value, 0) : null,
      without: missing ? `; without ${format.count(missing)} of ${format.count(each.length)} workloads: unknown` : "",
    };
  };
  return [of((state) => state !== "asleep"), of((state) => state === "asleep")];
}
