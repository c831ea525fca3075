// Builds elements. Text is always a text node: tenants name workloads, so nothing of a response is ever HTML.

const SVG = "http://www.w3.org/2000/svg";

// h("td", {class: "name", title: "…"}, "text", element, …); null children and attributes are skipped.
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

// Changes only what differs, so a selection and a screen reader survive the poll.
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export function mark(element, name, value) {
  if (value === null || value === undefined) element.removeAttribute(name);
  else if (element.getAttribute(name) !== String(value)) element.setAttribute(name, String(value));
}

export function number(element, text, value) {
  say(element, text);
  mark(element, "data-unknown", value === null || value === undefined ? "" : null);
}

// The sign of a state: each has its own shape, so that none depends on colour.
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

// The word of a code that this page does not know.
export const plain = (code) => ({ word: code.replaceAll("_", " "), meaning: null });

// Shows the reason: the explanation of the state.
export function showReason(element, row, reason) {
  say(element, row.why);
  mark(element, "title", reason.meaning ? `${row.why}\n${reason.word}: ${reason.meaning}` : row.why);
}

// Shows the obstacle of KEDA or the HPA, if there is one.
export function showObstacle(chip, row, hindrances) {
  chip.hidden = !row.hindered;
  if (chip.hidden) return;
  const word = hindrances.get(row.hindered) ?? plain(row.hindered);
  say(chip, word.word);
  mark(chip, "class", word.severity === "fine" ? "chip quiet" : "chip");
  mark(chip, "title", row.hindered_by);
}
