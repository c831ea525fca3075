// A chart of one workload: axes with units, a readout by pointer or arrow keys. Unknown values are gaps.

import { h, s, say } from "./dom.js";
import { clock, isKnown, moment } from "./format.js";
import { area, largest, line } from "./spark.js";

const HEADROOM = 1.05; // a line along the very top looks cut off
const HEIGHT = 150;
const LEFT = 46;
const HALF_A_TIME = 16; // pixels: nearer to the right edge, "10:00" ends at its time
const RIGHT = 10;
const TOP = 8;
const BOTTOM = 20;
const STEPS_S = [60, 300, 600, 900, 1800, 3600, 7200, 21600, 43200, 86400];

// {title, unit, say, top, lines: [{name, label, key, area, step}]}; `moved(index)` is called with the point that is read.
export function chart(about, moved) {
  const readout = h("span", { class: "readout" });
  const legend = about.lines.length > 1
    ? about.lines.map((each) => h("span", { class: `legend ${each.name}` }, each.label)) : null;
  const canvas = h("div", {
    class: "canvas", tabindex: 0, role: "img",
    onpointermove: (event) => read(nearest(event.clientX - canvas.getBoundingClientRect().left)),
    onpointerleave: () => read(null),
    onkeydown: arrows,
    onblur: () => read(null),
  });
  const element = h("figure", { class: "chart" },
    h("figcaption", {}, h("strong", {}, about.title), legend, readout), canvas);
  let series = null;
  let from = 0;
  let to = 1;
  let index = null;

  const width = () => Math.max(200, canvas.clientWidth);
  const x = (at) => LEFT + ((at - from) / (to - from)) * (width() - LEFT - RIGHT);

  function draw() {
    if (!series || !element.isConnected) return;
    const top = about.top ?? nice(HEADROOM * largest(...about.lines.map((each) => series[each.key])));
    const y = (value) => TOP + (1 - Math.min(value, top) / top) * (HEIGHT - TOP - BOTTOM);
    const at = series.at;
    const marks = [0, top / 2, top].map((value) => s("g", { class: "tick" },
      s("line", { x1: LEFT, x2: width() - RIGHT, y1: y(value), y2: y(value) }),
      s("text", { x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" }, about.say(value))));
    const shapes = about.lines.flatMap((each) => [
      each.area && s("path", { class: `area ${each.name}`, d: area(at, series[each.key], x, y, HEIGHT - BOTTOM, each.step) }),
      s("path", { class: `line ${each.name}`, d: line(at, series[each.key], x, y, each.step) }),
    ]);
    canvas.replaceChildren(s("svg", { width: width(), height: HEIGHT, viewBox: `0 0 ${width()} ${HEIGHT}`, "aria-hidden": "true" },
      marks, times(from, to, width()).map((time) => s("text", { class: "time", x: x(time), y: HEIGHT - 4, "text-anchor": x(time) > width() - HALF_A_TIME ? "end" : "middle" }, clock(time, false))),
      shapes, cursor(y)));
    canvas.setAttribute("aria-label", `${about.title}, ${about.unit}. ${words(at.length - 1)}. Arrow keys select other times.`);
    say(readout, words(index ?? at.length - 1));
  }

  function cursor(y) {
    if (index === null || series.at[index] === undefined) return [];
    const px = x(series.at[index]);
    const dots = about.lines.filter((each) => isKnown(series[each.key][index]))
      .map((each) => s("circle", { class: `dot ${each.name}`, cx: px, cy: y(Math.min(series[each.key][index], about.top ?? Infinity)), r: 3 }));
    return [s("line", { class: "cursor", x1: px, x2: px, y1: TOP, y2: HEIGHT - BOTTOM }), ...dots];
  }

  function words(place) {
    if (!series || series.at[place] === undefined) return "no data of this time";
    const values = about.lines.map((each) => {
      const value = series[each.key][place];
      const text = isKnown(value) ? about.say(value) : "unknown";
      return about.lines.length > 1 ? `${each.label} ${text}` : text;
    });
    return `${place === series.at.length - 1 ? "now" : clock(series.at[place])}: ${values.join(", ")}`;
  }

  function nearest(px) {
    if (!series?.at.length) return null;
    const time = from + ((px - LEFT) / (width() - LEFT - RIGHT)) * (to - from);
    return series.at.reduce((best, at, place) => (Math.abs(at - time) < Math.abs(series.at[best] - time) ? place : best), 0);
  }

  function read(place) {
    if (place === index) return;
    index = place;
    moved(place);
  }

  function arrows(event) {
    if (!series?.at.length || !["ArrowLeft", "ArrowRight"].includes(event.key)) return;
    event.preventDefault();
    event.stopPropagation();
    const last = series.at.length - 1;
    read(Math.max(0, Math.min(last, (index ?? last) + (event.key === "ArrowLeft" ? -1 : 1))));
  }

  return {
    element,
    draw,
    words: () => words(index ?? (series?.at.length ?? 0) - 1),
    read(place) {
      index = place;
      draw();
    },
    show(given, begin, end) {
      [series, from, to] = [given, begin, Math.max(end, begin + 1)];
      draw();
    },
  };
}

// The next round number whose half is whole, so that the axis rests while the load varies.
export function nice(value) {
  if (!(value > 1)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  const steps = power > 1 ? [1, 1.5, 2, 3, 4, 5, 6, 8, 10] : [1, 2, 4, 6, 8, 10];
  return steps.map((step) => step * power).find((step) => step >= value);
}

// Round local times, at least 70 pixels apart.
export function times(from, to, width) {
  const step = STEPS_S.find((each) => (each / (to - from)) * width >= 70) ?? 86400;
  const offset = new Date(from * 1000).getTimezoneOffset() * 60;
  const first = Math.ceil((from - offset) / step) * step + offset;
  return Array.from({ length: Math.floor((to - first) / step) + 1 }, (_, place) => first + place * step);
}

// The reasons over time, as a band of states.
export function reasonBand(series, from, to, reasonWords) {
  const runs = [];
  series.at.forEach((at, place) => {
    const reason = series.reason?.[place] ?? null;
    const end = series.at[place + 1] ?? to;
    const last = runs.at(-1);
    if (last && last.reason === reason) last.end = end;
    else runs.push({ reason, begin: at, end });
  });
  return h("div", { class: "band", role: "img", "aria-label": `Reasons: ${runs.map((run) => reasonWords.get(run.reason)?.word ?? run.reason ?? "unknown").join(", then ")}` },
    runs.map((run) => {
      const word = reasonWords.get(run.reason);
      const part = h("span", { "data-state": word?.state ?? "unknown", title: `${moment(run.begin)}: ${word?.word ?? run.reason ?? "unknown"}` }, h("span", {}, word?.word ?? run.reason ?? "unknown"));
      part.style.left = `${((Math.max(run.begin, from) - from) / (to - from)) * 100}%`;
      part.style.width = `${((run.end - Math.max(run.begin, from)) / (to - from)) * 100}%`;
      return part;
    }));
}
