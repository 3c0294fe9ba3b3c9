// Writes that the guard did not let pass: each is a former holder that went on, or a mistake.

import { byId, cell, linkToLease, make, say } from "./dom.js";
import { time } from "./format.js";

const SHOWN_MAX = 50;

export class RefusedCommits {
  #body = byId("refused").tBodies[0];
  #number = 0;

  onEvent(event) {
    if (event.kind !== "commit_refused") return;
    this.#number += 1;
    const link = make("a", { href: linkToLease(event.key), textContent: event.key });
    const at = make("time", { dateTime: event.at, title: event.at, textContent: time(event.at) });
    this.#body.prepend(
      make("tr", {}, cell("Time", at), cell("Key", link), cell("By", event.owner || "–"),
        cell("Token", String(event.token), { className: "number" }), cell("Cause", cause(event.detail))),
    );
    while (this.#body.rows.length > SHOWN_MAX) this.#body.lastElementChild.remove();
    say(byId("refused-count"), String(this.#number));
    byId("refused-note").hidden = true;
  }
}

const CAUSES = {
  stale_token: "the key has been granted anew since",
  token_used: "this grant has made its one write",
  seq_replayed: "the sequence number was used before",
  not_live: "the lease has ended",
  revision_conflict: "the record has changed",
  mode_conflict: "another mode than the guard’s",
};

const cause = (code) => (CAUSES[code] ? `${code}: ${CAUSES[code]}` : code);
