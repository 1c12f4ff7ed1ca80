// The page as a whole: which view is shown, what stands in the address, colours, progress.

import { chooseStore, events, get, takeToken } from "./api.js";
import { $, el } from "./dom.js";
import * as search from "./search.js";

const MANY = new Set(["type", "tag", "path", "collection"]);
const NAMES = ["view", "store", "q", "type", "tag", "path", "collection", "after", "before", "mode",
  "limit", "open", "line", "pane", "entity", "node", "memory"];
const LAZY = {
  memories: () => import("./memories.js"),
  graph: () => import("./graph.js"),
  tree: () => import("./tree.js"),
};
const TITLES = { search: "Search", memories: "Memories", graph: "Graph", tree: "Tree" };

// ---------------------------------------------------------------- what is shown, and its address

function read() {
  const given = new URLSearchParams(location.search);
  const state = {};
  for (const name of NAMES) state[name] = MANY.has(name) ? given.getAll(name) : given.get(name) ?? "";
  if (!TITLES[state.view]) state.view = "search";
  return state;
}

function link(changes) {
  const given = new URLSearchParams();
  for (const [name, value] of Object.entries({ ...app.state, ...changes })) {
    if (name === "view" && value === "search") continue;
    for (const each of Array.isArray(value) ? value : [value]) {
      if (each !== "" && each !== undefined && each !== null) given.append(name, each);
    }
  }
  const text = given.toString();
  return text ? `?${text}` : "./";
}

const app = {
  state: read(),
  status: null,
  link,
  // Typing replaces the address; whatever somebody would call a step can be gone back from.
  go(changes, { replace = false } = {}) {
    const url = link(changes);
    app.state = { ...app.state, ...changes };
    history[replace ? "replaceState" : "pushState"](null, "", url);
    return show();
  },
};

let current = "";
async function show() {
  const { state } = app;
  const words = { search: state.q, graph: state.entity }[state.view];
  document.title = [words, TITLES[state.view], "Clew"].filter(Boolean).join(" · ");
  for (const anchor of document.querySelectorAll("nav [data-view]")) {
    const here = anchor.dataset.view === state.view;
    anchor.toggleAttribute("aria-current", here);
    if (here) anchor.setAttribute("aria-current", "page");
  }
  const searching = state.view === "search";
  $("search").hidden = !searching;
  $("view").hidden = searching;
  const changed = current !== state.view;
  current = state.view;
  if (searching) return search.show(app, changed);
  if (changed) $("view").replaceChildren();
  const view = await LAZY[state.view]();
  if (app.state.view === state.view) return view.show(app, $("view"), changed);
}

// Plain clicks on links within the page change what is shown; others are the browser's.
document.addEventListener("click", (event) => {
  const anchor = event.target.closest("a[href]");
  if (!anchor || event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey) return;
  const href = anchor.getAttribute("href") ?? "";
  if (!href.startsWith("?") && href !== "./") return;
  event.preventDefault();
  const { store } = app.state;
  history.pushState(null, "", href);
  app.state = read();
  if (anchor.dataset.view && store && !app.state.store) app.state.store = store;
  show();
});
addEventListener("popstate", () => {
  app.state = read();
  show();
});

// ---------------------------------------------------------------- keys that work everywhere

const typing = (node) => node.closest?.("input, textarea, select, [contenteditable]");

addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
  if (event.key === "/" && !typing(event.target)) {
    event.preventDefault();
    const field = document.querySelector("main [type=search]:not([hidden] *)");
    field?.focus();
    field?.select();
  } else if (app.state.view === "search") search.press(app, event);
});

// ---------------------------------------------------------------- colours

const SCHEMES = { "": ["◐", "as the system"], light: ["☀", "light"], dark: ["☾", "dark"] };

function paint(scheme) {
  const [sign, said] = SCHEMES[scheme];
  if (scheme) document.documentElement.dataset.theme = scheme;
  else delete document.documentElement.dataset.theme;
  const button = $("theme");
  button.textContent = sign;
  button.setAttribute("aria-label", `Colours: ${said}`);
  button.title = `Colours: ${said}`;
}

function colours() {
  let scheme = localStorage.getItem("clew-theme") ?? "";
  if (!(scheme in SCHEMES)) scheme = "";
  paint(scheme);
  $("theme").addEventListener("click", () => {
    // The first click shows the other one, whatever the system has.
    const dark = matchMedia("(prefers-color-scheme: dark)").matches;
    const order = dark ? ["", "light", "dark"] : ["", "dark", "light"];
    scheme = order[(order.indexOf(scheme) + 1) % 3];
    localStorage.setItem("clew-theme", scheme);
    paint(scheme);
  });
}

// ---------------------------------------------------------------- the store, and what it is doing

async function overview() {
  const choice = $("store");
  let names;
  try {
    const { stores } = await get("stores");
    names = stores.filter((each) => each.kind === "folder").map((each) => each.name);
    app.memory = stores.find((each) => each.kind === "memory")?.name;
    app.status = await get("status");
  } catch {
    return; // a search will say what is wrong
  }
  if (names.length > 1) {
    choice.replaceChildren(...names.map((name) => el("option", { value: name }, name)));
    choice.value = app.state.store || names[0];
    choice.hidden = false;
    choice.onchange = () => {
      chooseStore(choice.value);
      app.go({ store: choice.value, open: "", entity: "", node: "", memory: "" });
      overview();
    };
  }
  if (app.state.view === "search") search.draw(app);
}

async function follow() {
  const box = $("progress");
  let wait = 1000;
  let ran = false;
  for (;;) {
    try {
      for await (const { data } of events("GET", "index/progress")) {
        wait = 1000;
        const { state, stage, done, total } = data;
        const busy = state === "running";
        box.hidden = !busy;
        box.querySelector(".bar").style.width = total ? `${Math.round((100 * done) / total)}%` : "0";
        box.querySelector("p").textContent = !busy ? "" : total ? `${stage}: ${done} of ${total}` : stage || "indexing";
        if (ran && !busy) overview();
        ran = busy;
      }
    } catch (error) {
      if (error.status >= 400 && error.status < 500) return; // this server does not tell
    }
    box.hidden = true;
    await new Promise((resolve) => setTimeout(resolve, wait));
    wait = Math.min(2 * wait, 60_000);
  }
}

takeToken();
colours();
if (app.state.store) chooseStore(app.state.store);
search.start(app);
app.ready = overview();
show();
follow();
