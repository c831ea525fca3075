// The page: asks for the rows, shows one view or the other, and says so when nobody answers. What was shown last stays.

import { ask, routeOf } from "./asking.js";
import { mark, say } from "./dom.js";
import { fleetView } from "./fleet.js";
import { clock, span } from "./format.js";
import { histories } from "./history.js";
import { workloadView } from "./workload.js";

const POLL_MS = 2_000;
const SLOWER_MS = 5_000; // after a failure
const ACCOUNTS_MS = 30_000;
const STANDS_S = 15; // a Board older than this is one that nobody renews

const main = document.getElementById("main");
const silence = document.getElementById("silence");
const past = histories();
let words = null;
let fleet = null;
let view = null;
let board = null; // the last rows, and when they came by this browser's own steady clock
let etag = null;
let answeredAt = null;
let failed = null;
let accounts = { askedAt: -Infinity, document: null };

function route() {
  if (!words) return;
  const asked = routeOf(location.hash);
  view = asked ? workloadView(words, asked) : fleet;
  document.title = view.title;
  main.replaceChildren(view.element);
  if (board) view.show(board);
  if (accounts.document) view.accounts(accounts.document);
  view.opened();
  if (asked) window.scrollTo(0, 0);
}

async function poll() {
  try {
    words ??= await wordsOf();
    fleet ??= fleetView(words, { wanted, of: past.of });
    const answer = await ask("api/v1/rows");
    if (answer.status !== 200) throw new Error(`HTTP ${answer.status}`);
    answeredAt = performance.now();
    failed = null;
    take(answer);
    ledger();
  } catch (error) {
    failed = reasonOf(error);
  }
  tell();
}

function take(answer) {
  const same = answer.etag !== null && answer.etag === etag;
  etag = answer.etag;
  board = answer.document;
  mark(document.body, "data-version", board.version);
  if (!view) route();
  else if (!same) view.show(board);
}

async function wordsOf() {
  const { status, document: given } = await ask("page/words.json");
  if (status !== 200) throw new Error(`HTTP ${status}`);
  return given;
}

const reasonOf = (error) => (error.name === "TimeoutError" ? "no answer in time" : error.message.startsWith("HTTP") ? error.message : "nobody answers");

async function ledger() {
  if (performance.now() - accounts.askedAt < ACCOUNTS_MS) return;
  accounts.askedAt = performance.now();
  try {
    const { status, document: given } = await ask("api/v1/accounts");
    if (status !== 200) return;
    accounts.document = given;
    view.accounts(given);
  } catch {
    // the rows' own poll says who does not answer
  }
}

async function wanted(rows, total) {
  if (await past.refresh(rows, total)) fleet.draw();
}

// What the head says: of the server, of the Board's age, and of the answer that did not come.
function tell() {
  const age = board ? board.now - board.at : null;
  const stands = board !== null && age > STANDS_S;
  const health = document.getElementById("health");
  const state = failed ? "silent" : board?.unwell.length || stands ? "unwell" : board ? "well" : "asking";
  mark(health, "data-health", state);
  say(health, { silent: "no answer", unwell: stands ? "standing still" : "not ready", well: "ready", asking: "asking" }[state]);
  mark(health, "title", board?.unwell.join("\n") || null);
  say(document.getElementById("role"), board?.role ?? "");
  say(document.getElementById("clock"), board ? clock(board.at) : "unknown");
  silence.hidden = !failed && !stands && !board?.unwell.length;
  mark(document.body, "data-silent", silence.hidden ? null : "");
  // Said aloud once for each change; the age beside it moves every second.
  say(document.getElementById("spoken"), failed ? "Tidegate does not answer" : stands ? "Tidegate stands still" : "");
  if (failed && board) say(silence, `${failed}: what is shown is ${span((performance.now() - answeredAt) / 1000)} old, of ${clock(board.now)}`);
  else if (failed) say(silence, `${failed}: nothing is known yet`);
  else if (stands) say(silence, `Tidegate answers, but has decided nothing for ${span(age)}`);
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
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
  if (view?.key(event)) event.preventDefault();
});
window.addEventListener("hashchange", route);
window.addEventListener("scroll", () => requestAnimationFrame(() => view === fleet && fleet?.draw()), { passive: true });
window.addEventListener("resize", () => requestAnimationFrame(() => view?.draw()));
document.addEventListener("visibilitychange", () => document.hidden || poll());
setInterval(() => failed && tell(), 1_000); // the age of what is shown goes on
forever();
