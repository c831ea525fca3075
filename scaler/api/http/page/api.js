// Requests to the server, always to this origin and below the path of the page (a proxy may add a prefix).

const TIMEOUT_MS = 10_000;

// {status, etag, document}; document is null unless the status is 200. Throws without an answer.
export async function get(path) {
  const response = await fetch(path, { cache: "no-cache", signal: AbortSignal.timeout(TIMEOUT_MS) });
  const etag = response.headers.get("ETag");
  return { status: response.status, etag, document: response.ok ? await response.json() : null };
}

export const keyOf = (row) => JSON.stringify([row.namespace, row.name, row.trigger ?? ""]);

// The path of a workload: ("api/v1/explain", row) is "api/v1/explain/ai/chat?trigger=decode".
export function pathOf(base, row, query = {}) {
  const search = new URLSearchParams(query);
  if (row.trigger) search.set("trigger", row.trigger);
  const rest = search.size ? `?${search}` : "";
  return `${base}/${encodeURIComponent(row.namespace)}/${encodeURIComponent(row.name)}${rest}`;
}

// The page of a workload: "#/ai/chat", "#/ai/chat/decode", with "?at=…" for a decision of the past.
export function hashOf(row, at = null) {
  const parts = [row.namespace, row.name, row.trigger].filter((part) => part).map(encodeURIComponent);
  return `#/${parts.join("/")}${at === null ? "" : `?at=${at}`}`;
}

// A dashboard of Tidegate in the configured Grafana; for a row with its variables.
export function grafanaOf(links, uid, row = null) {
  const query = row ? `?${new URLSearchParams({ "var-namespace": row.namespace, "var-workload": row.trigger ? `${row.name}/${row.trigger}` : row.name })}` : "";
  return `${links.grafana.replace(/\/$/, "")}/d/${uid}${query}`;
}

// The scaled object in the configured console.
export function objectOf(links, row) {
  const values = { namespace: row.namespace, kind: row.kind.toLowerCase(), name: row.object };
  return links.object.replace(/\{(namespace|kind|name)\}/g, (_, name) => encodeURIComponent(values[name]));
}

export function routeOf(hash) {
  const [path, query] = hash.replace(/^#\/?/, "").split("?");
  const [namespace, name, trigger = ""] = path.split("/").filter((part) => part).map(decoded);
  const at = new URLSearchParams(query ?? "").get("at");
  return name === undefined ? null : { namespace, name, trigger, at: at === null ? null : Number(at) };
}

// A hash that was typed by hand may be malformed.
function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}
