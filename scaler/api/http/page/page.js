// The page: fetches the rows, shows one of two views, and reports when there is no answer. The last view stays.

import { get, grafanaOf, routeOf } from "./api.js";
import { mark, say } from "./dom.js";
import { fleetView } from "./fleet.js";
import { clock, span } from "./format.js";
import { helpDialog } from "./help.js";
import { histories } from "./history.js";
import { workloadView } from "./workload.js";

const POLL_MS = 2_000;
const SLOWER_MS = 5_000; // after a failure
const ACCOUNTS_MS = 30_000;
const STALE_S = 15; // an older Board is no longer renewed

const main = document.getElementById("main");
const silence = document.getElementById("silence");
const past = histories();
let words = null;
let help = null;
let fleet = null;
let view = null;
let board = null; // the last rows
let etag = null;
let answeredAt = null; // when they came, by the monotonic clock of this browser
let failed = null;
let accounts = { requestedAt: -Infinity, document: null };

function route() {
  if (!words) return;
  const selected = routeOf(location.hash);
  view = selected ? workloadView(words, selected) : fleet;
  document.title = view.title;
  main.replaceChildren(view.element);
  if (board) view.show(board);
  if (accounts.document) view.accounts(accounts.document);
  view.opened();
  if (selected) window.scrollTo(0, 0);
}

async function poll() {
  try {
    words ??= await wordsOf();
    fleet ??= fleetView(words, { wanted, of: past.of, begin: past.begin });
    help ??= document.body.appendChild(helpDialog(words));
    const answer = await get("api/v1/rows");
    if (answer.status !== 200) throw new Error(`HTTP ${answer.status}`);
    answeredAt = performance.now();
    failed = null;
    take(answer);
    ledger();
  } catch (error) {
    failed = reasonOf(error);
  }
  showServer();
}

function take(answer) {
  const same = answer.etag !== null && answer.etag === etag;
  etag = answer.etag;
  board = answer.document;
  mark(document.body, "data-version", board.version);
  say(document.getElementById("release"), `Tidegate ${board.release}`);
  const grafana = document.getElementById("grafana");
  grafana.hidden = !board.links.grafana;
  if (!grafana.hidden) mark(grafana, "href", grafanaOf(board.links, "tidegate-overview"));
  if (!view) route();
  else if (!same) view.show(board);
}

async function wordsOf() {
  const { status, document: given } = await get("page/words.json");
  if (status !== 200) throw new Error(`HTTP ${status}`);
  return given;
}

const reasonOf = (error) => (error.name === "TimeoutError" ? "timeout" : error.message.startsWith("HTTP") ? error.message : "no answer");

async function ledger() {
  if (performance.now() - accounts.requestedAt < ACCOUNTS_MS) return;
  accounts.requestedAt = performance.now();
  try {
    const { status, document: given } = await get("api/v1/accounts");
    if (status !== 200) return;
    accounts.document = given;
    view.accounts(given);
  } catch {
    // the poll of the rows reports it
  }
}

async function wanted(rows, total) {
  if (await past.refresh(rows, total)) fleet.draw();
}

// Shows the state of the server, the age of the Board, and a failed poll.
function showServer() {
  const age = board ? board.now - board.at : null;
  const stale = board !== null && age > STALE_S;
  const health = document.getElementById("health");
  const state = failed ? "silent" : board?.unwell.length || stale ? "unwell" : board ? "well" : "asking";
  mark(health, "data-health", state);
  say(health, { silent: "no answer", unwell: stale ? "no ticks" : "not ready", well: "ready", asking: "loading" }[state]);
  mark(health, "title", board?.unwell.join("\n") || null);
  say(document.getElementById("role"), board?.role ?? "");
  say(document.getElementById("clock"), board ? clock(board.at) : "unknown");
  silence.hidden = !failed && !stale && !board?.unwell.length;
  mark(document.body, "data-silent", silence.hidden ? null : "");
  // Announced once for each change; the age in the banner moves every second.
  say(document.getElementById("spoken"), failed ? "Tidegate does not answer" : stale ? "Tidegate makes no decisions" : "");
  if (failed && board) say(silence, `${failed}: the data is ${span((performance.now() - answeredAt) / 1000)} old, of ${clock(board.now)}`);
  else if (failed) say(silence, `${failed}: no data yet`);
  else if (stale) say(silence, `Tidegate answers, but its last decisions are ${span(age)} old`);
  else if (board?.unwell.length) say(silence, `Tidegate is not ready: ${board.unwell.join("; ")}`);
}

async function forever() {
  for (;;) {
    if (!document.hidden) await poll();
    await new Promise((resolve) => setTimeout(resolve, failed ? SLOWER_MS : POLL_MS));
  }
}

document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
document.getElementById("help").addEventListener("click", () => help?.showModal());
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented || help?.open) return;
  if (event.key === "?" && event.target.tagName !== "INPUT") return help?.showModal();
  if (view?.key(event)) event.preventDefault();
});
window.addEventListener("hashchange", route);
window.addEventListener("scroll", () => requestAnimationFrame(() => view === fleet && fleet?.draw()), { passive: true });
window.addEventListener("resize", () => requestAnimationFrame(() => view?.draw()));
document.addEventListener("visibilitychange", () => document.hidden || poll());
setInterval(() => failed && showServer(), 1_000); // the age of the data goes on
forever();
