// What is asked of the server, always of our own origin and below the page's own path (a proxy may add a prefix).

const PATIENCE_MS = 10_000;

// {status, etag, document}; document is null unless the status is 200. Throws where nobody answers.
export async function ask(path) {
  const response = await fetch(path, { cache: "no-cache", signal: AbortSignal.timeout(PATIENCE_MS) });
  const etag = response.headers.get("ETag");
  return { status: response.status, etag, document: response.ok ? await response.json() : null };
}

export const keyOf = (row) => JSON.stringify([row.namespace, row.name, row.trigger ?? ""]);

// Below a workload: ("api/v1/explain", row) is "api/v1/explain/ai/chat?trigger=decode".
export function pathOf(base, row, query = {}) {
  const search = new URLSearchParams(query);
  if (row.trigger) search.set("trigger", row.trigger);
  const rest = search.size ? `?${search}` : "";
  return `${base}/${encodeURIComponent(row.namespace)}/${encodeURIComponent(row.name)}${rest}`;
}

// Its page: "#/ai/chat", "#/ai/chat/decode", with "?at=…" for a decision of the past.
export function hashOf(row, at = null) {
  const parts = [row.namespace, row.name, row.trigger].filter((part) => part).map(encodeURIComponent);
  return `#/${parts.join("/")}${at === null ? "" : `?at=${at}`}`;
}

export function routeOf(hash) {
  const [path, query] = hash.replace(/^#\/?/, "").split("?");
  const [namespace, name, trigger = ""] = path.split("/").filter((part) => part).map(decoded);
  const at = new URLSearchParams(query ?? "").get("at");
  return name === undefined ? null : { namespace, name, trigger, at: at === null ? null : Number(at) };
}

// Somebody may have typed the address by hand.
function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}
