// Writes numbers exactly as `scaler/explain/formats.py` does; a test compares the two. Unknown is never a 0. Halves are
// rounded up.

export const UNKNOWN = "unknown";

export const isKnown = (value) => value !== null && value !== undefined && !Number.isNaN(value);
const thousands = (whole) => String(whole).replace(/\B(?=(\d{3})+$)/g, ",");
const two = (whole) => String(whole).padStart(2, "0");

// Requests or replicas: whole, or with one decimal where that matters. More than 0 is never "0".
export function count(value) {
  if (!isKnown(value)) return UNKNOWN;
  const size = Math.abs(value);
  const tenths = Math.floor(size * 10 + 0.5);
  if (value > 0 && tenths === 0) return "<0.1";
  const minus = value < 0 && tenths ? "-" : "";
  if (size >= 100 || tenths % 10 === 0) return minus + thousands(Math.floor(size + 0.5));
  return `${minus}${Math.floor(tenths / 10)}.${tenths % 10}`;
}

// 0..1 as a percentage. More than 0 is never "0 %".
export function ratio(value) {
  if (!isKnown(value)) return UNKNOWN;
  const percent = Math.floor(value * 100 + 0.5);
  return value > 0 && percent === 0 ? "<1 %" : `${percent} %`;
}

// A duration.
export function span(seconds) {
  if (!isKnown(seconds)) return UNKNOWN;
  const length = Math.max(0, seconds);
  if (length < 60) return `${Math.floor(length)} s`;
  if (length < 3600) return `${Math.floor(length / 60)} min`;
  if (length < 2 * 86400) return `${Math.floor(length / 3600)} h ${two(Math.floor((length % 3600) / 60))}`;
  return `${Math.floor(length / 86400)} d`;
}

// Replicas: spec.replicas of the cluster, and the published ones where they differ.
export function shift(cluster, published) {
  return !isKnown(cluster) || cluster === published ? count(published) : `${count(cluster)} → ${count(published)}`;
}

// The age of the oldest reading; of a held decision, the time since it is held.
export function age(row, now) {
  if (isKnown(row.held_since)) return `held ${span(now - row.held_since)}`;
  return isKnown(row.measured_at) ? span(now - row.measured_at) : UNKNOWN;
}

export function bytes(value) {
  if (!isKnown(value)) return UNKNOWN;
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let size = value;
  let unit = 0;
  while (size >= 1024 && unit < units.length - 1) {
    size /= 1024;
    unit += 1;
  }
  return `${count(size)} ${units[unit]}`;
}

export const gpuHours = (seconds) => (isKnown(seconds) ? count(seconds / 3600) : UNKNOWN);

// POSIX seconds in local time.
export function clock(at, seconds = true) {
  if (!isKnown(at)) return UNKNOWN;
  const date = new Date(at * 1000);
  return `${two(date.getHours())}:${two(date.getMinutes())}${seconds ? `:${two(date.getSeconds())}` : ""}`;
}

export function moment(at) {
  if (!isKnown(at)) return UNKNOWN;
  const date = new Date(at * 1000);
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ${clock(at)}`;
}

