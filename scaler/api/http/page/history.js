// The last hour of the workloads in view. A small fleet is fetched at once, a large one workload by workload, as they come
// into view. A server without history has none, and nothing else changes.

import { get, keyOf, pathOf } from "./api.js";

const SMALL_FLEET = 200; // workloads: 60 points of 7 columns each are half a megabyte
const FRESH_MS = 10_000;
const ABSENT_MS = 60_000; // a server without this path gets it by an upgrade
const AT_ONCE = 4;
const POINTS = 60;
const HOUR_S = 3600;
const MINUTE_S = 60;

export function histories() {
  const kept = new Map(); // key -> {series, requestedAt}
  let absentUntil = 0;
  let busy = false;

  const take = (documents, now) => {
    for (const series of documents) kept.set(keyOf(series), { series, requestedAt: now });
  };

  async function one(row, now) {
    kept.set(keyOf(row), { series: kept.get(keyOf(row))?.series ?? null, requestedAt: now });
    const { status, document } = await get(pathOf("api/v1/history", row, { points: POINTS }));
    if (status === 200) take(seriesOf(document, row), now);
  }

  async function all(now) {
    const { status, document } = await get(`api/v1/history?points=${POINTS}`);
    if (status === 404) absentUntil = now + ABSENT_MS;
    else if (status === 200) take(document.workloads, now);
    return status;
  }

  return {
    // When the charts begin, POSIX seconds: with the oldest point, at most an hour ago, at least a minute. Null without.
    begin(now) {
      const first = Math.min(...[...kept.values()].map((each) => each.series?.at.find((at) => at >= now - HOUR_S) ?? Infinity));
      return Number.isFinite(first) ? Math.max(now - HOUR_S, Math.min(first, now - MINUTE_S)) : null;
    },

    of: (row) => kept.get(keyOf(row))?.series ?? null,

    // Refreshes. rows: those in view; total: of the fleet. Resolves to whether anything was fetched.
    async refresh(rows, total) {
      const now = performance.now();
      const old = rows.filter((row) => !(now - (kept.get(keyOf(row))?.requestedAt ?? -Infinity) < FRESH_MS));
      if (busy || !old.length || now < absentUntil) return false;
      busy = true;
      try {
        if (total <= SMALL_FLEET) {
          for (const row of old) kept.set(keyOf(row), { series: kept.get(keyOf(row))?.series ?? null, requestedAt: now });
          await all(now);
        } else {
          for (let i = 0; i < old.length; i += AT_ONCE) {
            await Promise.all(old.slice(i, i + AT_ONCE).map((row) => one(row, now)));
          }
        }
        return true;
      } catch {
        return false; // the poll of the rows reports it
      } finally {
        busy = false;
      }
    },
  };
}

// The series of this trigger in a workload's document.
export function seriesOf(document, row) {
  const listed = document.workloads ?? [document];
  return listed.filter((series) => keyOf(series) === keyOf(row));
}
