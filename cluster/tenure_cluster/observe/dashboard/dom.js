// The few helpers with which the page is made. Text is only ever set as text: what others wrote stays text.

export const byId = (id) => document.getElementById(id);

/** A new element. Properties are set as such, those with a hyphen as attributes. */
export function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.includes("-")) element.setAttribute(name, value);
    else element[name] = value;
  }
  element.append(...children);
  return element;
}

/** Sets a text if it is another one: an unchanged one must not be announced or repainted. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** A cell with the name of its column, which narrow screens show before it. */
export function cell(label, content = "", properties = {}) {
  return make("td", { "data-label": label, ...properties }, content);
}

/** The bodies' rows are put into this order, moving no row that needs not be moved. */
export function arrange(body, rows) {
  const wanted = new Set(rows);
  for (const row of [...body.children]) if (!wanted.has(row)) row.remove();
  let next = body.firstElementChild;
  for (const row of rows) {
    if (row === next) next = next.nextElementSibling;
    else body.insertBefore(row, next);
  }
}

/** What is left of a lease, as a text and a bar. */
export const timeLeft = (tag) =>
  make(tag, { className: "left" }, make("span"), make("progress", { "aria-label": "time left" }));

export const linkToLease = (key) => `#/lease/${encodeURIComponent(key)}`;

/** Buttons that close the dialog, and what is done when its form is sent. */
export function onSubmit(dialog, action) {
  for (const button of dialog.querySelectorAll("[data-close]")) {
    button.addEventListener("click", () => dialog.close());
  }
  dialog.querySelector("form").addEventListener("submit", (event) => {
    event.preventDefault();
    action();
  });
}
