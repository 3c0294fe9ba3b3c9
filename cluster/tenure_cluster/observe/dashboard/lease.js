// One key: who holds it, who waits, what has happened to it, and breaking it.

import { Refused, Unreachable } from "./api.js";
import { arrange, byId, cell, make, onSubmit, say, timeLeft } from "./dom.js";
import { duration, progress, time } from "./format.js";
import { ENDS, showLeft, timed } from "./leases.js";

const HISTORY_MAX = 500;
const ASK_AGAIN_MS = 5_000;
const TICK_MS = 500;

export class LeasePage {
  #api;
  #key = null;
  #over = null;
  #timer = 0;
  #holders = [];
  #askedAt = 0;

  constructor(api) {
    this.#api = api;
    setInterval(() => this.#tick(), TICK_MS);
    const dialog = byId("break");
    byId("break-open").addEventListener("click", () => {
      say(byId("break-key"), this.#key);
      say(byId("break-problem"), "");
      byId("break-reason").value = "";
      dialog.showModal();
      byId("break-reason").focus();
    });
    onSubmit(dialog, () => this.#break(dialog));
  }

  open(key) {
    this.close();
    this.#key = key;
    this.#over = new AbortController();
    say(byId("lease-title"), key);
    say(byId("lease-note"), "");
    for (const id of ["queue", "history"]) byId(id).tBodies[0].replaceChildren();
    byId("holders").replaceChildren();
    byId("chain").replaceChildren();
    this.#ask();
    const signal = this.#over.signal;
    const on = {
      event: (event) => this.#onEvent(event),
      gap: () => {
        say(byId("history-note"), "What came before is not remembered any more.");
        this.#soon();
      },
    };
    say(byId("history-note"), "");
    this.#api.follow({ prefix: key, from: 0, signal }, on);
  }

  close() {
    this.#over?.abort();
    this.#over = null;
    this.#key = null;
    if (byId("break").open) byId("break").close();
  }

  #onEvent(event) {
    if (event.key !== this.#key) return;
    const body = byId("history").tBodies[0];
    const at = make("time", { dateTime: event.at, title: event.at, textContent: time(event.at) });
    const what = make("span", { textContent: event.kind.replaceAll("_", " ") });
    if (ENDS.has(event.kind) && event.kind !== "released") what.className = "warn";
    if (event.kind === "commit_refused") what.className = "bad";
    body.prepend(
      make("tr", {}, cell("Time", at), cell("What", what), cell("Owner", event.owner || "–"),
        cell("Token", event.token ? String(event.token) : "–", { className: "number" }),
        cell("Detail", event.detail || "–")),
    );
    while (body.rows.length > HISTORY_MAX) body.lastElementChild.remove();
    this.#soon();
  }

  #soon() {
    if (!this.#timer) {
      this.#timer = setTimeout(() => {
        this.#timer = 0;
        this.#ask();
      }, 100);
    }
  }

  async #ask() {
    const key = this.#key;
    if (key === null) return;
    this.#askedAt = performance.now();
    try {
      const asked = performance.now();
      const [page, queue] = await Promise.all([
        this.#api.get("/v1/leases", { prefix: key, limit: 100 }),
        this.#api.get(`/v1/queues/${encodeURIComponent(key)}`),
      ]);
      if (key !== this.#key) return;
      this.#holders = page.leases.filter((lease) => lease.key === key).map((lease) => timed(lease, asked));
      this.#showHolders();
      this.#showQueue(queue);
    } catch (error) {
      if (!(error instanceof Refused || error instanceof Unreachable)) throw error;
      if (key === this.#key) say(byId("lease-note"), error.message);
    }
  }

  #showHolders() {
    byId("break-open").disabled = this.#holders.length === 0;
    const place = byId("holders");
    if (this.#holders.length === 0) {
      place.replaceChildren(make("p", { className: "quiet", textContent: "Nobody holds this key." }));
      return;
    }
    place.replaceChildren(...this.#holders.map((lease) => this.#holder(lease)));
    this.#tick();
  }

  #holder(lease) {
    const fields = [
      ["Holder", lease.owner + (lease.state === "parked" ? ", parked" : "")],
      ["Token", String(lease.token)],
      ["Mode", lease.mode === "permit" ? `permit, slot ${lease.slot}` : lease.mode],
      ["Granted", time(lease.granted_at)],
      ["Renewed", time(lease.renewed_at)],
      ["TTL", duration(lease.ttl_ms)],
      ...(lease.progress ? [["Progress", progress(lease.progress)]] : []),
      ...(lease.progress_ms ? [["Demanded", `every ${duration(lease.progress_ms)}`]] : []),
      ...Object.entries(lease.metadata),
    ];
    const list = make("dl", {}, make("dt", { textContent: "Expires in" }));
    const left = timeLeft("dd");
    list.append(left);
    for (const [name, value] of fields) {
      list.append(make("dt", { textContent: name }), make("dd", { textContent: value }));
    }
    lease.shown = left;
    return list;
  }

  #showQueue(queue) {
    const rows = queue.waiters.slice(0, 200).map((waiter) =>
      make("tr", {}, cell("Place", String(waiter.position)), cell("Owner", waiter.owner),
        cell("Mode", waiter.mode), cell("Has waited", duration(waiter.waiting_ms)),
        cell("For", waiter.keys ? waiter.keys.join(", ") : "this key")),
    );
    arrange(byId("queue").tBodies[0], rows);
    say(byId("queue-count"), queue.waiters_total ? String(queue.waiters_total) : "");
    const pause = `Granted again in ${duration(queue.blocked_ms ?? 0)}, after a grace period. `;
    say(byId("queue-note"), (queue.blocked_ms ? pause : "") + (queue.waiters_total ? "" : "Nobody waits."));
    const chain = queue.chain.length > 1 ? queue.chain : [];
    byId("chain").replaceChildren(...chain.map((link) => make("li", { textContent: chained(link) })));
  }

  #tick() {
    if (this.#key === null || document.hidden) return;
    const now = performance.now();
    for (const lease of this.#holders) {
      if (lease.shown) showLeft(lease.shown.firstElementChild, lease.shown.lastElementChild, lease, now);
    }
    if (now - this.#askedAt > ASK_AGAIN_MS) this.#ask();
  }

  async #break(dialog) {
    const key = this.#key;
    const reason = byId("break-reason").value.trim();
    if (!reason) {
      say(byId("break-problem"), "Say why: whoever lost the lease will ask.");
      byId("break-reason").focus();
      return;
    }
    try {
      const { broken } = await this.#api.post("/v1/break", { key, reason });
      const ended = broken.map(({ owner, token }) => `${owner} (token ${token})`).join(", ");
      say(byId("lease-note"), ended ? `Broken: ${ended}` : "Nobody held the key any more.");
      dialog.close();
    } catch (error) {
      if (!(error instanceof Refused || error instanceof Unreachable)) throw error;
      say(byId("break-problem"), error.message);
    }
  }
}

function chained(link) {
  const does = { holding: "holds", parked: "has parked", waiting: "is the first to wait for" }[link.state];
  return `${link.owner} ${does} ${link.key} since ${duration(link.since_ms)}`;
}
