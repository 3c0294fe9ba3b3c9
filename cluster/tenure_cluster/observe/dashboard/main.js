// The page put together: which part is shown, what goes on in the background, the credential, the theme.

import { Api, Refused } from "./api.js";
import { byId, onSubmit, say } from "./dom.js";
import { LeasePage } from "./lease.js";
import { Leases } from "./leases.js";
import { Nodes } from "./nodes.js";
import { RefusedCommits } from "./refused.js";

const PAST_EVENTS = 2_000; // in which refused commits of before are looked for

const api = new Api();
const nodes = new Nodes(api);
const leases = new Leases(api);
const refused = new RefusedCommits();
const leasePage = new LeasePage(api);

leases.addEventListener("change", () => nodes.tell({ counts: leases.counts }));

/** List until that succeeds once, then follow what happens. */
async function follow() {
  for (;;) {
    try {
      await leases.list();
      break;
    } catch (error) {
      if (error instanceof Refused && error.status === 401) return; // a credential begins it anew
      await new Promise((wake) => setTimeout(wake, 1_000));
    }
  }
  const on = {
    event: (event) => {
      leases.onEvent(event);
      refused.onEvent(event);
    },
    gap: () => leases.refresh(),
    live: (live) => {
      nodes.tell({ live });
      if (live) leases.refresh();
    },
  };
  const from = Math.max(0, leases.revision - PAST_EVENTS);
  await api.follow({ from, signal: new AbortController().signal }, on);
}

let shown = null;

function route() {
  const hash = location.hash;
  if (hash !== "" && !hash.startsWith("#/")) return; // the skip link's
  const key = hash.startsWith("#/lease/") ? decoded(hash.slice("#/lease/".length)) : null;
  byId("overview").hidden = key !== null;
  byId("lease").hidden = key === null;
  document.title = key === null ? "Tenure" : `${key} – Tenure`;
  if (key !== null) leasePage.open(key);
  else leasePage.close();
  // After a link was followed, the focus goes with it, and so does what a screen reader says.
  if (shown !== null && shown !== hash) byId(key === null ? "main" : "lease-title").focus();
  shown = hash;
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function credential() {
  const dialog = byId("login");
  const open = (problem = "") => {
    say(byId("login-problem"), problem);
    byId("credential").value = "";
    byId("credential-forget").disabled = !api.hasCredential;
    if (!dialog.open) dialog.showModal();
    byId("credential").focus();
  };
  const use = (text) => {
    dialog.close();
    api.useCredential(text);
    location.reload(); // everything is asked for anew, in the name of somebody else
  };
  byId("credential-open").addEventListener("click", () => open());
  byId("credential-forget").addEventListener("click", () => use(""));
  onSubmit(dialog, () => {
    const text = byId("credential").value.trim();
    if (/^[\x21-\x7e]+$/.test(text)) use(text);
    else open("A credential has no blanks, and only letters, digits and signs of ASCII.");
  });
  let asked = false;
  api.addEventListener("unauthenticated", () => {
    if (asked) return; // once is enough: whoever has closed the dialog knows where it is
    asked = true;
    const refused = "The cluster doesn’t take this credential.";
    if (!dialog.open) open(api.hasCredential ? refused : "The cluster asks for a credential.");
  });
}

function theme() {
  const choice = byId("theme");
  const show = (name) => {
    if (name) document.documentElement.dataset.theme = name;
    else delete document.documentElement.dataset.theme;
  };
  choice.value = localStorage.getItem("tenure.theme") ?? "";
  show(choice.value);
  choice.addEventListener("change", () => {
    localStorage.setItem("tenure.theme", choice.value);
    show(choice.value);
  });
}

theme();
credential();
window.addEventListener("hashchange", route);
route();
nodes.run();
follow();
