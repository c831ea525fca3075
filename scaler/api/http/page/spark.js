// Sparklines: at most the last hour of one workload in a cell, over the whole width. Unknown values are gaps.

import { s } from "./dom.js";
import { count, isKnown, ratio, span } from "./format.js";

export const WIDTH = 120;
export const HEIGHT = 26;

// Paths through the known points. `step`: a value holds until the next.
export function line(at, values, x, y, step = false) {
  let path = "";
  let before = null;
  for (let i = 0; i < at.length; i += 1) {
    if (!isKnown(values[i])) {
      before = null;
      continue;
    }
    const px = x(at[i]).toFixed(1);
    const py = y(values[i]).toFixed(1);
    if (before === null) path += `M${px} ${py}`;
    else path += step ? `H${px}V${py}` : `L${px} ${py}`;
    before = py;
    // A point between two gaps would be no line at all.
    if (!isKnown(values[i + 1])) path += "h1";
  }
  return path;
}

// The same, closed down to `floor`, one area for each run without a gap.
export function area(at, values, x, y, floor, step = false) {
  let path = "";
  let last = null;
  for (let i = 0; i < at.length; i += 1) {
    if (!isKnown(values[i])) {
      if (last !== null) path += `V${floor}Z`;
      last = null;
      continue;
    }
    const px = x(at[i]).toFixed(1);
    const py = y(values[i]).toFixed(1);
    if (last === null) path += `M${px} ${floor}V${py}`;
    else path += step ? `H${px}V${py}` : `L${px} ${py}`;
    last = px;
  }
  return last === null ? path : `${path}V${floor}Z`;
}

export const largest = (...lists) => Math.max(0, ...lists.flat().filter(isKnown));

// The time axis in words: "hour", or "2 min" of a server that has just begun.
export const lately = (seconds) => (seconds >= 3600 ? "hour" : span(seconds));

// from, now: POSIX seconds at the left and the right edge.
function scales(from, now, top) {
  return {
    x: (at) => Math.max(0, ((at - from) / (now - from)) * WIDTH),
    y: (value) => HEIGHT - 1.5 - (Math.min(value, top) / top) * (HEIGHT - 3),
  };
}

function frame(label, ...paths) {
  return s(
    "svg",
    { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", class: "spark", role: "img", "aria-label": label },
    s("title", {}, label),
    paths,
  );
}

export function load(series, from, now) {
  const top = Math.max(1, largest(series.load));
  const { x, y } = scales(from, now, top);
  return frame(
    `load in the last ${lately(now - from)}: at most ${count(largest(series.load))} requests`,
    s("path", { d: area(series.at, series.load, x, y, HEIGHT), class: "area load" }),
    s("path", { d: line(series.at, series.load, x, y), class: "line load" }),
  );
}

export function replicas(series, from, now) {
  const top = Math.max(1, largest(series.replicas, series.actual, series.demand));
  const { x, y } = scales(from, now, top);
  return frame(
    `replicas in the last ${lately(now - from)}: at most ${count(largest(series.replicas))} published, ${count(largest(series.actual))} running`,
    s("path", { d: area(series.at, series.actual, x, y, HEIGHT, true), class: "area actual" }),
    s("path", { d: line(series.at, series.demand, x, y), class: "line demand" }),
    s("path", { d: line(series.at, series.replicas, x, y, true), class: "line answer" }),
  );
}

export function gpu(series, from, now) {
  const { x, y } = scales(from, now, 1);
  return frame(
    `GPU activity in the last ${lately(now - from)}: at most ${ratio(largest(series.gpu))}`,
    s("path", { d: area(series.at, series.gpu, x, y, HEIGHT), class: "area gpu" }),
    s("path", { d: line(series.at, series.gpu, x, y), class: "line gpu" }),
  );
}
