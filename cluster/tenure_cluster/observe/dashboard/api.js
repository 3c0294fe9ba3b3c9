// Calls to the node that serves this page, and the events that it tells.
//
// An EventSource can't send a header, and a credential in a URL ends up in logs. So events are read from the
// body of a fetch.

const STORED = "tenure.credential";
const SILENCE_MAX_MS = 20_000;

/** The node answered, and the answer is no. */
export class Refused extends Error {
  constructor(status, problem) {
    super(problem.detail ?? `The node answered ${status}`);
    this.status = status;
    this.code = problem.code ?? "";
    this.problem = problem;
  }
}

/** Nobody answered. */
export class Unreachable extends Error {}

export class Api extends EventTarget {
  #credential = sessionStorage.getItem(STORED) ?? "";

  get hasCredential() {
    return this.#credential !== "";
  }

  /** Goes with every request from now on; "" for none. It ends with the tab. */
  useCredential(credential) {
    this.#credential = credential;
    if (credential) sessionStorage.setItem(STORED, credential);
    else sessionStorage.removeItem(STORED);
    this.dispatchEvent(new Event("credential"));
  }

  async get(path, query = {}) {
    const fields = Object.entries(query).filter(([, value]) => value !== undefined);
    const search = new URLSearchParams(fields).toString();
    const response = await this.#fetch(search ? `${path}?${search}` : path, {});
    return response.json();
  }

  async post(path, body) {
    const headers = { "Content-Type": "application/json" };
    const response = await this.#fetch(path, { method: "POST", headers, body: JSON.stringify(body) });
    return response.json();
  }

  async #fetch(path, options) {
    const headers = { Accept: "application/json", ...options.headers };
    if (this.#credential) headers.Authorization = `Bearer ${this.#credential}`;
    let response;
    try {
      // Relative to the page, which a proxy may serve below a path of its own.
      const url = new URL(`..${path}`, document.baseURI);
      response = await fetch(url, { ...options, headers, cache: "no-store", redirect: "error" });
    } catch (error) {
      if (options.signal?.aborted) throw error;
      throw new Unreachable("The node can’t be reached");
    }
    if (response.ok) return response;
    const problem = await response.json().catch(() => ({}));
    if (response.status === 401) this.dispatchEvent(new Event("unauthenticated"));
    throw new Refused(response.status, problem);
  }

  /**
   * Tells what happens after a revision, through lost connections, until the signal is aborted.
   *
   * on.event({revision, kind, …}) for each event, once and in order; on.gap() if some were missed;
   * on.live(bool) when the stream opens or breaks.
   */
  async follow({ prefix = "", from, signal }, on) {
    let place = from;
    let failures = 0;
    while (!signal.aborted) {
      try {
        for await (const { id, event, data } of this.#stream(prefix, place, signal, () => on.live?.(true))) {
          failures = 0;
          if (id !== undefined) place = id;
          if (event === "gap") {
            on.gap?.();
            place = JSON.parse(data).revision;
            break;
          }
          if (event === "shutting_down") break;
          if (!NOTICES.has(event)) on.event(JSON.parse(data));
        }
      } catch (error) {
        if (signal.aborted) return;
        if (error instanceof Refused && error.code === "compacted") {
          place = error.problem.revision;
          on.gap?.();
          continue;
        }
      }
      if (signal.aborted) return;
      on.live?.(false);
      failures += 1;
      await new Promise((wake) => setTimeout(wake, Math.min(10_000, 200 * 2 ** Math.min(failures, 8))));
    }
  }

  async *#stream(prefix, place, signal, opened) {
    const search = new URLSearchParams(prefix ? { prefix } : {});
    if (place !== undefined) search.set("from", place);
    const over = new AbortController();
    const end = () => over.abort();
    signal.addEventListener("abort", end);
    let timer = setTimeout(end, SILENCE_MAX_MS);
    try {
      const headers = { Accept: "text/event-stream" };
      const response = await this.#fetch(`/v1/events?${search}`, { headers, signal: over.signal });
      opened();
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = "";
      for (;;) {
        const { done, value } = await reader.read();
        if (done) return;
        clearTimeout(timer);
        timer = setTimeout(end, SILENCE_MAX_MS);
        const blocks = (rest + value).split("\n\n");
        rest = blocks.pop();
        for (const block of blocks) {
          const parsed = parse(block);
          if (parsed) yield parsed;
        }
      }
    } finally {
      clearTimeout(timer);
      signal.removeEventListener("abort", end);
      over.abort();
    }
  }
}

const NOTICES = new Set(["bookmark", "leader_changed", "alive"]);

/** One block of a stream of Server-Sent Events; null if it tells no event. */
function parse(block) {
  const fields = {};
  for (const line of block.split("\n")) {
    const colon = line.indexOf(":");
    if (colon > 0) fields[line.slice(0, colon)] = line.slice(colon + 1).replace(/^ /, "");
  }
  if (fields.event === undefined) return null;
  const id = fields.id === undefined ? undefined : Number(fields.id);
  return { id, event: fields.event, data: fields.data };
}
