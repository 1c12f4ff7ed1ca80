// What stands beside the list: the document that is open, why the list is as it is, or, before
// anything was asked, what there is to search.

import { showDocument } from "./document.js";
import { $, counted, el } from "./dom.js";
import { explanation } from "./explain.js";
import { closePane, heaviestOf, lineOf } from "./search.js";

const KEYS = [["/", "search"], ["↓ ↑", "move through the results"], ["Enter", "open"], ["Esc", "back"]];
const SYNTAX = [['"keel bolts"', "these words in this order"], ["-kestrel", "without"], ["tag:safety", "with a tag"],
  ["path:projects/", "below a folder"], ["after:2026-01-01", "changed since"]];

let drawn = "";

export function showPane(app, found) {
  const { state } = app;
  const pane = $("pane");
  const hit = found?.results.find((each) => each.id === state.open && String(lineOf(each)) === state.line)
    ?? found?.results.find((each) => each.id === state.open);
  const tab = state.pane === "why" || (!state.open && found) ? "why" : state.open ? "file" : "start";
  // The document stays as it is scrolled while the list beside it changes.
  const key = JSON.stringify([tab, state.open, state.line, state.store, hit ? hit.highlights : state.q]);
  if (tab === "file" && key === drawn) return;
  drawn = key;
  if (tab === "start") return pane.replaceChildren(start(app));
  const body = el("div", { class: tab === "why" ? "why" : "document" });
  const tabs = el("div", { class: "pane-head" },
    state.open && found ? el("div", { class: "tabs", role: "group", "aria-label": "What to show" },
      choice(app, "", "Text", tab === "file"), choice(app, "why", "Why it is here", tab === "why"))
      : el("h2", null, tab === "why" ? "Why this order" : "Text"),
    state.open || state.pane ? el("button", { type: "button", class: "close", "aria-label": "Close", title: "Close (Esc)", onclick: () => closePane(app) }, "×") : "");
  pane.replaceChildren(tabs, body);
  if (tab === "why") {
    if (found) body.replaceChildren(...explanation(app, found, hit, heaviestOf(found.results)).filter(Boolean));
    pane.scrollTop = 0;
  } else showDocument(app, body, hit);
}

const choice = (app, pane, text, on) => el("button", {
  type: "button", "aria-pressed": String(on), onclick: () => {
    app.go({ pane });
    document.querySelector(".tabs [aria-pressed=true]")?.focus();
  },
}, text);

const megabytes = (bytes) => `${(bytes / 1e6).toFixed(bytes < 1e7 ? 1 : 0)} MB`;

function start(app) {
  const status = app.status;
  return el("div", { class: "start" },
    status?.records === undefined ? "" : el("section", { class: "block" },
      el("h2", null, "What can be found here"),
      el("p", { class: "big" }, counted(status.records, "record"), el("span", null, ` in ${counted(status.chunks ?? 0, "passage")}`)),
      el("dl", { class: "facts" }, Object.entries({
        folder: status.root,
        types: Object.entries(status.types ?? {}).sort((a, b) => b[1] - a[1]).map(([name, count]) => `${name} ${count.toLocaleString("en")}`).join(", "),
        embedded: status.embedded === undefined ? "" : `${Math.round(status.embedded * 100)} %`,
        model: status.model,
        size: status.bytes ? megabytes(Object.values(status.bytes).reduce((sum, each) => sum + each, 0)) : "",
        graph: status.graph?.built ? `${counted(status.graph.entities, "entity", "entities")}, ${counted(status.graph.relations, "relation")}` : "not built: clew graph build",
        tree: status.tree?.nodes ? counted(status.tree.nodes, "node") : "not built: clew tree build",
      }).filter(([, value]) => value).map(([name, value]) => [el("dt", null, name), el("dd", null, value)]))),
    el("section", { class: "block" }, el("h2", null, "In a query"),
      el("dl", { class: "facts" }, SYNTAX.map(([sign, said]) => [el("dt", null, el("code", null, sign)), el("dd", null, said)]))),
    el("section", { class: "block keys" }, el("h2", null, "Keys"),
      el("dl", { class: "facts" }, KEYS.map(([key, said]) => [el("dt", null, el("kbd", null, key)), el("dd", null, said)]))));
}
