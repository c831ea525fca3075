// What no row shows: GPUs that match no workload, and scrapes that begin late or not at all. Each with reason and remedy.

import { h } from "./dom.js";
import { count } from "./format.js";

const WINDOW_S = 300;
const MANY = 0.05; // of the scrapes, as in the alert TidegateOverloaded
const JUDGED_FROM = 20; // scrapes: a share of fewer says nothing
const OPENED_UP_TO = 3; // entries: a longer list is folded

export function findingsPanel() {
  const summary = h("summary");
  const list = h("ul");
  const element = h("details", { class: "findings", hidden: true }, summary, list);
  const past = []; // {at, scrapes} of the last minutes
  let drawn = null;

  return {
    element,
    show(document) {
      while (past.length && past[0].at < document.now - WINDOW_S) past.shift();
      past.push({ at: document.now, scrapes: document.scrapes });
      const found = [...delays(past[0].scrapes, document.scrapes), ...unmatched(document.gpus_unmatched ?? [])];
      if (drawn === (drawn = JSON.stringify(found))) return;
      if (element.hidden) element.open = found.length <= OPENED_UP_TO;
      element.hidden = !found.length;
      summary.replaceChildren(titleOf(document.gpus_unmatched ?? [], found));
      list.replaceChildren(...found.map(({ sentence, remedy }) => h("li", {}, `${sentence}. `, h("span", { class: "remedy" }, `${remedy}.`))));
    },
  };
}

function titleOf(gpus, found) {
  const many = gpus.reduce((sum, each) => sum + each.gpus, 0);
  const parts = many ? [`${count(many)} GPU${many === 1 ? " matches" : "s match"} no workload`] : [];
  if (found.length > gpus.length) parts.unshift("Late readings");
  return parts.join(" · ");
}

const unmatched = (gpus) => gpus.map(({ sentence, remedy }) => ({ sentence, remedy: capital(remedy) }));

// What was late or skipped of the scrapes between two answers of the server.
function delays(before, now) {
  const made = now.made - before.made;
  const late = now.late - before.late;
  const overload = now.skipped_overload - before.skipped_overload;
  const slow = now.skipped_slow_target - before.skipped_slow_target;
  if (!(made >= JUDGED_FROM)) return []; // also if targets have gone, with their counts
  const found = [];
  if (late + overload > MANY * made) {
    found.push({
      sentence: `Tidegate is overloaded: of the last ${count(made)} scrapes, ${count(late)} began late; ${count(overload)} more were skipped`,
      remedy: "Give it a faster CPU or a longer scrape.interval, or split its workloads in two",
    });
  }
  if (slow > MANY * made) {
    found.push({
      sentence: `${count(slow)} scrapes were skipped, of ${count(made + slow)}: their targets had not responded to the request before`,
      remedy: "See the durations of the targets in an explanation, or run tidegate doctor",
    });
  }
  return found;
}

const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);
