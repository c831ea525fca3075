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
      const { asleep, held } = gpuSeconds(document.workloads);
      const since = document.since ? `, since ${format.moment(document.since)}` : "";
      const price = document.gpu_hour;
      if (asleep !== null) figure("asleep", "GPU-hours asleep", format.gpuHours(asleep), `GPU-hours that sleeping workloads did not hold${since}`, "asleep");
      if (!format.isKnown(price)) return;
      const at = `at ${price} per GPU-hour (prices.gpu_hour)${since}`;
      if (held !== null) figure("spent", "spent", format.count((held / HOUR_S) * price), `for the GPU-hours that workloads held, ${at}`);
      if (asleep !== null) figure("saved", "saved asleep", format.count((asleep / HOUR_S) * price), `for the GPU-hours asleep, against always on, ${at}`);
    },
  };
}

// Sums over all workloads; null if none is known.
function gpuSeconds(workloads) {
  const sum = (numbers) => (numbers.length ? numbers.reduce((total, each) => total + each, 0) : null);
  const known = workloads.flatMap((each) => Object.entries(each.gpu_seconds ?? {})).filter(([, seconds]) => format.isKnown(seconds));
  return {
    asleep: sum(known.filter(([state]) => state === "asleep").map(([, seconds]) => seconds)),
    held: sum(known.filter(([state]) => state !== "asleep").map(([, seconds]) => seconds)),
  };
}
