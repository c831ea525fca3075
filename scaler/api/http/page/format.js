// Numbers as people read them, letter for letter as `scaler/explain/rows.py` writes them (a test compares the two).
// What is not known is said, and is never a 0. Halves are rounded up.

export const UNKNOWN = "unknown";

const known = (value) => value !== null && value !== undefined && !Number.isNaN(value);
const thousands = (whole) => String(whole).replace(/\B(?=(\d{3})+$)/g, ",");
const two = (whole) => String(whole).padStart(2, "0");

// Requests or replicas: whole, or with one decimal while that matters. Some is not none.
export function count(value) {
  if (!known(value)) return UNKNOWN;
  const size = Math.abs(value);
  const tenths = Math.floor(size * 10 + 0.5);
  if (value > 0 && tenths === 0) return "<0.1";
  const minus = value < 0 && tenths ? "-" : "";
  if (size >= 100 || tenths % 10 === 0) return minus + thousands(Math.floor(size + 0.5));
  return `${minus}${Math.floor(tenths / 10)}.${tenths % 10}`;
}

// 0..1 as a percentage. Some activity is not none.
export function ratio(value) {
  if (!known(value)) return UNKNOWN;
  const percent = Math.floor(value * 100 + 0.5);
  return value > 0 && percent === 0 ? "<1 %" : `${percent} %`;
}

// A length of time.
export function span(seconds) {
  if (!known(seconds)) return UNKNOWN;
  const length = Math.max(0, seconds);
  if (length < 60) return `${Math.floor(length)} s`;
  if (length < 3600) return `${Math.floor(length / 60)} min`;
  if (length < 2 * 86400) return `${Math.floor(length / 3600)} h ${two(Math.floor((length % 3600) / 60))}`;
  return `${Math.floor(length / 86400)} d`;
}

// Replicas: what the cluster was told to run, and what it is told now where that differs.
export function shift(cluster, told) {
  return !known(cluster) || cluster === told ? count(told) : `${count(cluster)} → ${count(told)}`;
}

// How old what a row rests on is; of a held answer, since when it is held.
export function age(row, now) {
  if (known(row.held_since)) return `held ${span(now - row.held_since)}`;
  return known(row.measured_at) ? span(now - row.measured_at) : UNKNOWN;
}

export function bytes(value) {
  if (!known(value)) return UNKNOWN;
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let size = value;
  let unit = 0;
  while (size >= 1024 && unit < units.length - 1) {
    size /= 1024;
    unit += 1;
  }
  return `${count(size)} ${units[unit]}`;
}

export const gpuHours = (seconds) => (known(seconds) ? count(seconds / 3600) : UNKNOWN);

// POSIX seconds by the reader's own clock.
export function clock(at, seconds = true) {
  if (!known(at)) return UNKNOWN;
  const date = new Date(at * 1000);
  return `${two(date.getHours())}:${two(date.getMinutes())}${seconds ? `:${two(date.getSeconds())}` : ""}`;
}

export function moment(at) {
  if (!known(at)) return UNKNOWN;
  const date = new Date(at * 1000);
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ${clock(at)}`;
}

export const isKnown = known;
