// The nodes, and the one line that says how the cluster is.

import { Refused, Unreachable } from "./api.js";
import { arrange, byId, cell, make, say } from "./dom.js";
import { bytes, count } from "./format.js";

const PERIOD_MS = 2_000;

export class Nodes {
  #api;
  #told = null;
  #problem = null;
  #live = false;
  #counts = null;

  constructor(api) {
    this.#api = api;
  }

  /** Asks now and every few seconds, for as long as the page is looked at. */
  async run() {
    for (;;) {
      if (!document.hidden) await this.ask();
      await new Promise((wake) => setTimeout(wake, PERIOD_MS));
    }
  }

  async ask() {
    try {
      this.#told = await this.#api.get("/v1/nodes");
      this.#problem = null;
      this.#render();
    } catch (error) {
      if (!(error instanceof Refused || error instanceof Unreachable)) throw error;
      this.#problem = error;
    }
    this.#sayHealth();
  }

  /** Whether events come in, and how many leases and waiters there are. */
  tell({ live = this.#live, counts = this.#counts }) {
    this.#live = live;
    this.#counts = counts;
    this.#sayHealth();
  }

  #sayHealth() {
    const { level, text } = health(this.#told, this.#problem, this.#live, this.#counts);
    const line = byId("health");
    line.dataset.level = level;
    say(line, text);
    // Read aloud only what is first to know: figures change all the time.
    say(byId("announced"), text.split(" · ")[0]);
  }

  #render() {
    const body = byId("nodes").tBodies[0];
    const present = new Map([...body.rows].map((row) => [row.dataset.node, row]));
    arrange(body, this.#told.nodes.map((node) => this.#row(node, present.get(node.id))));
  }

  #row(node, row) {
    const about = node.about;
    const low = isFull(node);
    const here = node.id === this.#told.node;
    if (!row) {
      row = make("tr");
      row.dataset.node = node.id;
      const name = make("th", { scope: "row" });
      name.append(here ? node.id : make("a", { href: `${node.http}/ui/`, textContent: node.id }));
      if (here) name.append(make("span", { className: "tag", textContent: "serves this page" }));
      row.append(
        name,
        cell("Role"),
        cell("Lag", "", { className: "number" }),
        cell("Disk free", "", { className: "number" }),
        cell("Version"),
        cell("State"),
      );
    }
    const [, role, lag, disk, version, state] = row.cells;
    say(role, isVoter(node) ? (about?.role ?? "unknown") : "learner");
    say(lag, node.lag === null ? "–" : count(node.lag, "entry", "entries"));
    say(disk, about ? bytes(about.disk_free_bytes) + (low ? ", low" : "") : "–");
    disk.classList.toggle("bad", low);
    say(version, about?.version ?? "–");
    say(state, !node.reached ? "not reached" : about.ready ? "serves" : about.reason);
    state.className = !node.reached ? "bad" : about.ready ? "good" : "warn";
    return row;
  }
}

/** One line: what an operator has to know first. */
export function health(told, problem, live, counts) {
  if (problem instanceof Refused) return { level: "bad", text: problem.message };
  const old = "The node that serves this page can't be reached; what you see is old";
  if (problem) return { level: "bad", text: old };
  if (!told) return { level: "unknown", text: "Asking the node …" };
  const voters = told.nodes.filter(isVoter);
  const learners = told.nodes.filter((node) => !isVoter(node));
  const size = voters.length;
  const here = told.nodes.find((node) => node.id === told.node);
  const ready = voters.filter((node) => node.about?.ready);
  const majority = Math.floor(size / 2) + 1;
  if (!here.about.ready) return { level: "bad", text: `${told.node} doesn't serve: ${here.about.reason}` };
  if (ready.length < majority) {
    return { level: "bad", text: `Only ${ready.length} of ${count(size, "node")} serve` };
  }
  const tail = [
    `leader ${told.leader}, term ${told.term}`,
    ...(learners.length ? [`${names(learners)} ${learners.length === 1 ? "does" : "do"} not vote yet`] : []),
    ...(counts ? [counts] : []),
    live ? "live" : "events are interrupted",
  ].join(" · ");
  const full = told.nodes.filter(isFull);
  if (full.length) return { level: "bad", text: `Disk space is low on ${names(full)} · ${tail}` };
  const versions = new Set(told.nodes.filter((node) => node.about).map((node) => node.about.version));
  if (ready.length < size) {
    const missing = voters.filter((node) => !node.about?.ready);
    const spare = ready.length - majority;
    const left = spare ? `${spare} more may fail` : "no other may fail";
    const are = missing.length === 1 ? "is" : "are";
    return { level: "warn", text: `${names(missing)} ${are} missing, ${left} · ${tail}` };
  }
  if (!live) return { level: "warn", text: `${count(size, "node")} serve · ${tail}` };
  if (versions.size > 1) return { level: "warn", text: `Nodes of ${versions.size} versions · ${tail}` };
  return { level: "good", text: `${size === 1 ? "The node serves" : `All ${size} nodes serve`} · ${tail}` };
}

/** A learner is sent the log and counts in no majority yet. */
const isVoter = ({ voter }) => voter !== false;

const isFull = ({ about }) => Boolean(about) && about.disk_free_bytes < about.disk_reserve_bytes;

const names = (nodes) => nodes.map((node) => node.id).join(", ");
