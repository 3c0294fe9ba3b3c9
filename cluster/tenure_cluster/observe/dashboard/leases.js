// The leases by the time that is left of them.
//
// They are listed once, and then events say what is to be looked at again: what ended goes at once, a renewal
// begins the time anew, and a key about which more is to be known is asked for, or all of them where many
// changed. What no event tells (the leases of large sessions are renewed silently) is found by listing now
// and then.

import { Refused, Unreachable } from "./api.js";
import { arrange, byId, cell, linkToLease, make, say, timeLeft } from "./dom.js";
import { count, duration, progress } from "./format.js";

const PAGE = 1_000;
const LISTED_MAX = 5_000;
const SHOWN_MAX = 200;
const KEYS_ASKED_MAX = 8;
const FEW = 50;
const LIST_AGAIN_MS = 15_000;
const TICK_MS = 500;

export class Leases extends EventTarget {
  #api;
  #leases = new Map(); // by key and token
  #changed = new Set();
  #stale = true;
  #more = false;
  #revision = 0;
  #prefix = "";
  #busy = false;
  #quietUntil = 0;
  #listedAt = 0;
  #timer = 0;
  #first = true;
  #body = byId("leases").tBodies[0];
  #rows = new Map();

  constructor(api) {
    super();
    this.#api = api;
    let typing = 0;
    byId("prefix").addEventListener("input", (event) => {
      clearTimeout(typing);
      typing = setTimeout(() => this.#narrow(event.target.value), 200);
    });
    setInterval(() => this.#tick(), TICK_MS);
  }

  /** Revision up to which the list has been told what happened. */
  get revision() {
    return this.#revision;
  }

  get counts() {
    const waiting = new Map([...this.#leases.values()].map((lease) => [lease.key, lease.waiters ?? 0]));
    const waiters = [...waiting.values()].reduce((sum, number) => sum + number, 0);
    const more = this.#more ? "more than " : "";
    return `${more}${count(this.#leases.size, "lease")}, ${waiters} waiting`;
  }

  /** List everything again, soon. */
  refresh() {
    this.#stale = true;
    this.#soon();
  }

  onEvent(event) {
    if (event.revision <= this.#revision || !event.key.startsWith(this.#prefix)) return;
    const id = idOf(event);
    const lease = this.#leases.get(id);
    if (ENDS.has(event.kind)) this.#leases.delete(id);
    if (event.kind === "renewed" && lease && !lease.state && !lease.progress_ms) {
      lease.deadline = performance.now() + lease.ttl_ms;
      if (this.#leases.size > FEW) return; // its TTL may be another one now, which the next list tells
    }
    if (event.kind === "commit_refused" || event.kind === "committed") return;
    this.#changed.add(event.key);
    this.#soon();
  }

  async list() {
    const began = performance.now();
    const prefix = this.#prefix;
    const found = new Map();
    let after;
    let revision;
    this.#changed.clear();
    this.#stale = false;
    do {
      const asked = performance.now();
      const page = await this.#api.get("/v1/leases", { prefix, limit: PAGE, after });
      revision ??= page.revision;
      for (const lease of page.leases) found.set(idOf(lease), timed(lease, asked));
      after = page.next;
    } while (after && found.size < LISTED_MAX);
    if (prefix !== this.#prefix) return this.refresh();
    this.#leases = found;
    this.#more = Boolean(after);
    this.#revision = revision;
    this.#listedAt = performance.now();
    this.#quietUntil = this.#listedAt + Math.max(1_000, 5 * (this.#listedAt - began));
    this.#render();
  }

  #narrow(prefix) {
    this.#prefix = prefix;
    this.#quietUntil = 0;
    this.refresh();
  }

  #soon() {
    if (this.#timer || this.#busy) return;
    this.#timer = setTimeout(() => {
      this.#timer = 0;
      this.#lookAgain();
    }, 60);
  }

  async #lookAgain() {
    if (this.#busy) return;
    this.#busy = true;
    try {
      if (this.#stale || this.#changed.size > KEYS_ASKED_MAX) {
        if (performance.now() < this.#quietUntil) return;
        await this.list();
      } else {
        const keys = [...this.#changed];
        this.#changed.clear();
        await Promise.all(keys.map((key) => this.#ask(key)));
        this.#render();
      }
    } catch (error) {
      if (!(error instanceof Refused || error instanceof Unreachable)) throw error;
      this.#stale = true;
      this.#quietUntil = performance.now() + 1_000;
    } finally {
      this.#busy = false;
    }
    if (this.#stale || this.#changed.size) this.#soon();
  }

  /** A key sorts before all others that begin like it, so its leases are the first ones of the list. */
  async #ask(key) {
    const asked = performance.now();
    const page = await this.#api.get("/v1/leases", { prefix: key, limit: 100 });
    for (const [id, lease] of this.#leases) if (lease.key === key) this.#leases.delete(id);
    for (const lease of page.leases) {
      if (lease.key === key) this.#leases.set(idOf(lease), timed(lease, asked));
    }
  }

  #tick() {
    if (document.hidden || !this.#listedAt) return;
    const now = performance.now();
    if (now - this.#listedAt > LIST_AGAIN_MS) this.#stale = true;
    for (const lease of this.#leases.values()) {
      if (lease.deadline < now && now - (lease.doubted ?? 0) > 1_000) {
        lease.doubted = now;
        this.#changed.add(lease.key);
      }
    }
    if (this.#stale || this.#changed.size) this.#soon();
    this.#render();
  }

  #render() {
    const now = performance.now();
    const held = [...this.#leases.values()].sort(
      (a, b) => a.deadline - b.deadline || (a.key < b.key ? -1 : 1),
    );
    const shown = held.slice(0, SHOWN_MAX);
    const ids = new Set(shown.map(idOf));
    const fresh = new Map();
    for (const lease of shown) fresh.set(idOf(lease), this.#update(this.#rows.get(idOf(lease)), lease, now));
    // A row that moves away under the pointer or the focus can't be used.
    const resting = this.#body.matches(":hover, :focus-within");
    const kept = resting ? [...this.#body.rows].filter((row) => ids.has(row.dataset.id)) : [];
    const rest = [...fresh.values()].filter((row) => !kept.includes(row));
    this.#rows = fresh;
    arrange(this.#body, [...kept, ...rest]);
    this.#first = false;
    say(byId("leases-count"), this.#leases.size ? String(this.#leases.size) + (this.#more ? "+" : "") : "");
    const hidden = held.length - shown.length;
    const none = this.#prefix ? "Nobody holds a key that begins like this." : "Nobody holds a lease.";
    const many = `${hidden} that expire later are not shown: say how their keys begin.`;
    say(byId("leases-note"), held.length === 0 ? (this.#listedAt ? none : "") : hidden ? many : "");
    this.dispatchEvent(new Event("change"));
  }

  #update(row, lease, now) {
    if (!row) {
      row = make("tr", { className: this.#first ? "" : "new" });
      row.dataset.id = idOf(lease);
      const link = make("a", { href: linkToLease(lease.key), textContent: lease.key });
      const key = make("th", { scope: "row" }, link);
      const mode = lease.mode === "permit" ? `slot ${lease.slot}` : lease.mode;
      if (mode !== "exclusive") key.append(tag(mode));
      row.append(
        key,
        cell("Holder"),
        cell("Token", String(lease.token), { className: "number" }),
        cell("Waiting", "", { className: "number" }),
        cell("Expires in", timeLeft("div")),
      );
    }
    const [, holder, , waiting, expires] = row.cells;
    const parked = lease.state === "parked" ? ", parked" : "";
    say(holder, lease.owner + parked);
    holder.title = lease.progress ? progress(lease.progress) : "";
    say(waiting, lease.waiters ? String(lease.waiters) : "–");
    const [text, bar] = expires.firstElementChild.children;
    showLeft(text, bar, lease, now);
    return row;
  }
}

export const ENDS = new Set(["released", "expired", "broken", "handed_over"]);

/** Shows what is left of a lease as a text and as a bar. */
export function showLeft(text, bar, lease, now) {
  const left = Math.max(0, lease.deadline - now);
  say(text, duration(left));
  bar.max = lease.state === "parked" ? lease.span : lease.ttl_ms;
  bar.value = Math.min(left, bar.max);
  bar.classList.toggle("low", left < bar.max / 4);
}

/** A lease with its deadline by this page's own clock, which counts from when the node was asked. */
export function timed(lease, asked) {
  return { ...lease, deadline: asked + lease.expires_in_ms, span: Math.max(1, lease.expires_in_ms) };
}

const idOf = ({ key, token }) => `${token} ${key}`;

const tag = (text) => make("span", { className: "tag", textContent: text });
