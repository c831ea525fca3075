// The last hour of those workloads that are looked at. Of a small fleet it is asked at once, of a large one workload by
// workload, as they come into view. Where the server keeps none there is none, and nothing else changes.

import { ask, keyOf, pathOf } from "./asking.js";

const SMALL_FLEET = 200; // workloads: 60 points of 7 columns each are half a megabyte
const FRESH_MS = 10_000;
const ABSENT_MS = 60_000; // a server that has no such path is asked again after an upgrade, not before
const AT_ONCE = 4;
const POINTS = 60;

export function histories() {
  const kept = new Map(); // key -> {series, askedAt}
  let absentUntil = 0;
  let busy = false;

  const take = (documents, now) => {
    for (const series of documents) kept.set(keyOf(series), { series, askedAt: now });
  };

  async function one(row, now) {
    kept.set(keyOf(row), { series: kept.get(keyOf(row))?.series ?? null, askedAt: now });
    const { status, document } = await ask(pathOf("api/v1/history", row, { points: POINTS }));
    if (status === 200) take(seriesOf(document, row), now);
  }

  async function all(now) {
    const { status, document } = await ask(`api/v1/history?points=${POINTS}`);
    if (status === 404) absentUntil = now + ABSENT_MS;
    else if (status === 200) take(document.workloads, now);
    return status;
  }

  return {
    of: (row) => kept.get(keyOf(row))?.series ?? null,

    // Make them fresh. rows: those in view; total: of the fleet. Resolves to whether anything was asked.
    async refresh(rows, total) {
      const now = performance.now();
      const old = rows.filter((row) => !(now - (kept.get(keyOf(row))?.askedAt ?? -Infinity) < FRESH_MS));
      if (busy || !old.length || now < absentUntil) return false;
      busy = true;
      try {
        if (total <= SMALL_FLEET) {
          for (const row of old) kept.set(keyOf(row), { series: kept.get(keyOf(row))?.series ?? null, askedAt: now });
          await all(now);
        } else {
          for (let i = 0; i < old.length; i += AT_ONCE) {
            await Promise.all(old.slice(i, i + AT_ONCE).map((row) => one(row, now)));
          }
        }
        return true;
      } catch {
        return false; // the Board's own poll says who does not answer
      } finally {
        busy = false;
      }
    },
  };
}

// Of one workload's document: the series of this trigger.
export function seriesOf(document, row) {
  const listed = document.workloads ?? [document];
  return listed.filter((series) => keyOf(series) === keyOf(row));
}
