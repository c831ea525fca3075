// Elements out of values. Text is always a text node: a tenant names workloads, so nothing of an answer is ever HTML.

const SVG = "http://www.w3.org/2000/svg";

// h("td", {class: "name", title: "…"}, "text", element, …); a null child or attribute is left out.
export function h(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

export function s(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

// Only what differs is touched: a screen reader and a selection survive the poll.
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export function mark(element, name, value) {
  if (value === null || value === undefined) element.removeAttribute(name);
  else if (element.getAttribute(name) !== String(value)) element.setAttribute(name, String(value));
}

// A state's sign: a shape of its own, so that nobody needs its colour.
export function sign(state) {
  const shapes = {
    serving: [s("circle", { cx: 6, cy: 6, r: 4.5 })],
    idle_warm: [s("circle", { cx: 6, cy: 6, r: 3.7, class: "hollow" })],
    loading: [s("circle", { cx: 6, cy: 6, r: 3.7, class: "hollow" }), s("path", { d: "M6 2.3a3.7 3.7 0 0 1 0 7.4z" })],
    pending: [s("circle", { cx: 6, cy: 6, r: 3.7, class: "hollow dashed" })],
    asleep: [s("path", { d: "M9.9 7.6A4.4 4.4 0 1 1 5.2 1.6 3.6 3.6 0 0 0 9.9 7.6z" })],
    unknown: [s("path", { d: "M6 1.2 10.8 6 6 10.8 1.2 6z" })],
  };
  return s("svg", { viewBox: "0 0 12 12", class: "sign", "aria-hidden": "true" }, shapes[state] ?? shapes.unknown);
}

// Of a code that this page has no word for.
export const plain = (code) => ({ word: code.replaceAll("_", " "), meaning: null });

// What keeps KEDA and the HPA from doing what they are told, if anything does.
export function hindered(chip, row, hindrances) {
  chip.hidden = !row.hindered;
  if (chip.hidden) return;
  const word = hindrances.get(row.hindered) ?? plain(row.hindered);
  say(chip, word.word);
  mark(chip, "class", word.severity === "fine" ? "chip quiet" : "chip");
  mark(chip, "title", row.hindered_by);
}
