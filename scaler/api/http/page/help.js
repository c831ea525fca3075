// The help: what the columns, states and reasons mean, and the keys. A dialog; Esc or a click beside it closes it.

import { h, sign } from "./dom.js";

const NUMBERS = [
  ["Replicas", "those of the cluster → those that Tidegate publishes, where they differ"],
  ["Requests", "in hand: waiting, running, or held by the gateway"],
  ["Needed", "replicas that the load needs, before rounding and bounds"],
  ["GPU activity", "mean over the GPUs of the workload"],
  ["Data age", "of the oldest reading that the decision rests on"],
  ["Small charts", "published replicas (line), those of the cluster (grey), requests, GPU activity; at most one hour"],
];
const KEYS = [["j k", "move"], ["Enter", "open"], ["Esc", "back, or clear the filters"], ["/", "filter"], ["?", "this help"]];

export function helpDialog(words) {
  const terms = (pairs) => h("dl", {}, pairs.map(([term, meaning]) => h("div", {}, h("dt", {}, term), h("dd", {}, meaning))));
  const dialog = h("dialog", { class: "help", "aria-label": "Help", onclick: (event) => event.target === dialog && dialog.close() },
    h("div", {}, h("header", {}, h("h2", {}, "Help"), h("button", { type: "button", class: "quiet", onclick: () => dialog.close() }, "close")),
      h("h3", {}, "Columns"), terms(NUMBERS),
      h("h3", {}, "States: what the GPUs of a workload do"),
      terms(words.states.map((word) => [[h("span", { "data-state": word.code }, sign(word.code)), " ", word.word].flat(), word.meaning])),
      h("h3", {}, "Reasons: why the decision is what it is"), terms(words.reasons.map((word) => [word.word, word.meaning])),
      h("h3", {}, "Why KEDA or the HPA does not follow yet"), terms(words.hindrances.map((word) => [word.word, word.meaning])),
      h("h3", {}, "Keys"), terms(KEYS.map(([key, meaning]) => [key.split(" ").map((each) => h("kbd", {}, each)), meaning]))));
  return dialog;
}
