// Search as one types: the list, its filters, and which hit is open beside it.

import { get } from "./api.js";
import { askQuestion, closeAnswer } from "./ask.js";
import { $, counted, debounce, el, marked, milliseconds, problem } from "./dom.js";
import { contributions } from "./explain.js";
import { showPane } from "./pane.js";

const WAIT = 80; // milliseconds after the last key
const STEP = 10;
const DAYS = [["past week", 7], ["past month", 30], ["past year", 365]];

let asked = ""; // what the list answers
let found = null;
let running = null;

// ---------------------------------------------------------------- asking

const parameters = ({ q, type, tag, path, collection, after, before, mode, limit }) =>
  ({ q, type, tag, path, collection, after, before, mode, limit: limit || STEP });

const narrowed = (state) => ["type", "tag", "path", "collection"].some((name) => state[name].length)
  || state.after || state.before;

async function run(app) {
  const { state } = app;
  const wanted = parameters(state);
  const key = JSON.stringify([wanted, state.store]);
  if (key === asked) return;
  asked = key;
  running?.abort();
  closeAnswer();
  if (!state.q.trim() && !narrowed(state)) {
    found = null;
    return draw(app);
  }
  const mine = (running = new AbortController());
  const begun = performance.now();
  document.body.classList.add("busy");
  try {
    const answer = await get("search", wanted, mine.signal);
    if (running !== mine) return;
    found = answer;
    found.waited = performance.now() - begun;
    $("results").dataset.words = wanted.q; // what the list answers: the benchmark waits for it
    draw(app);
  } catch (error) {
    if (error.name === "AbortError" || running !== mine) return;
    asked = "";
    found = null;
    draw(app);
    $("summary").replaceChildren(problem(error));
  } finally {
    if (running === mine) document.body.classList.remove("busy");
  }
}

// ---------------------------------------------------------------- the list

function place(hit) {
  if (!hit.path) return hit.id;
  if (hit.path.includes("://")) return hit.path;
  if (hit.metadata.location_unit) return `${hit.path}, ${hit.location}`;
  return `${hit.path}:${hit.metadata.snippet_line ?? 1}`;
}

export const lineOf = (hit) => hit.metadata.snippet_line ?? hit.lines?.[0] ?? 1;

const badge = (level) =>
  level ? el("span", { class: `badge ${level.toLowerCase()}`, title: "How likely it is relevant" }, level) : "";

function row(app, hit, index, heaviest) {
  const { heading, tags = [] } = hit.metadata;
  const here = app.state.open === hit.id && String(lineOf(hit)) === app.state.line;
  const path = place(hit);
  return el("li", { class: here ? "hit open" : "hit" },
    el("a", {
      href: app.link({ open: hit.id, line: String(lineOf(hit)), pane: app.state.pane === "why" ? "why" : "" }),
      "aria-current": here ? "true" : null,
      "data-index": index,
    },
      el("span", { class: "title" }, hit.title || hit.path || hit.id),
      heading ? el("span", { class: "heading" }, ` › ${heading}`) : ""),
    badge(hit.confidence),
    el("p", { class: "place" }, path),
    hit.snippet ? el("p", { class: "snippet" }, marked(hit.snippet, hit.highlights)) : "",
    el("div", { class: "foot" },
      contributions(hit, found.trace, heaviest, { thin: true }),
      tags.slice(0, 4).map((tag) =>
        el("button", { type: "button", class: "tag", onclick: () => toggle(app, "tag", tag) }, `#${tag}`))));
}

export const heaviestOf = (hits) => Math.max(0, ...hits.map((hit) =>
  Object.values(hit.signals).reduce((sum, signal) => sum + Math.abs(signal.contrib ?? 0), 0)));

// Leaves the field alone: somebody may be typing.
export function draw(app) {
  const hits = found?.results ?? [];
  const focused = document.activeElement?.closest?.("#results a")?.dataset.index;
  const heaviest = heaviestOf(hits);
  $("results").replaceChildren(...hits.map((hit, index) => row(app, hit, index, heaviest)));
  if (focused !== undefined) links()[Math.min(focused, hits.length - 1)]?.focus({ preventScroll: true });
  const trace = found?.trace ?? {};
  $("summary").textContent = !found ? ""
    : hits.length ? `${counted(hits.length, "result")} in ${milliseconds(trace.total_ms ?? found.waited)}`
      + (found.cache ? `, from the ${found.cache} cache` : "")
      + (found.suppressed ? `, ${counted(found.suppressed, "weaker one")} held back` : "")
    : "Nothing found.";
  $("why").hidden = !found;
  $("more").hidden = hits.length < Number(app.state.limit || STEP) || hits.length >= 100;
  const notes = [...(found?.notes ?? []).map((note) => note.text), ...(found?.degraded ?? [])];
  $("notes").hidden = !notes.length;
  $("notes").replaceChildren(...notes.map((text) => el("p", null, text)));
  facets(app);
  showPane(app, found);
}

const links = () => [...document.querySelectorAll("#results a")];

// ---------------------------------------------------------------- filters

function toggle(app, name, value) {
  const now = app.state[name];
  if (Array.isArray(now))
    app.go({ [name]: now.includes(value) ? now.filter((each) => each !== value) : [...now, value], limit: "" });
  else app.go({ [name]: now === value ? "" : value, limit: "" });
}

function chip(app, name, value, text, title) {
  const now = app.state[name];
  const on = Array.isArray(now) ? now.includes(value) : now === value;
  return el("button", {
    type: "button", class: "chip", "aria-pressed": String(on), title, "data-chip": `${name}=${value}`,
    onclick: () => toggle(app, name, value),
  }, text, on ? el("span", { "aria-hidden": "true", class: "cross" }, "×") : "");
}

const most = (counts, limit) =>
  [...counts].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1)).slice(0, limit).map(([name]) => name);

// What is on comes first; then what the list itself is made of, and the types of the whole store.
function facets(app) {
  const { state } = app;
  const hits = found?.results ?? [];
  const tags = new Map();
  const folders = new Map();
  const types = new Map();
  for (const hit of hits) {
    for (const tag of hit.metadata.tags ?? []) tags.set(tag, (tags.get(tag) ?? 0) + 1);
    const slash = hit.path?.includes("://") ? -1 : hit.path?.indexOf("/") ?? -1;
    if (slash > 0) folders.set(hit.path.slice(0, slash + 1), (folders.get(hit.path.slice(0, slash + 1)) ?? 0) + 1);
    if (hit.metadata.type) types.set(hit.metadata.type, (types.get(hit.metadata.type) ?? 0) + 1);
  }
  const known = new Map(Object.entries(app.status?.types ?? {}));
  const names = { type: most(known.size ? known : types, 5), tag: most(tags, 5), path: most(folders, 4) };
  const say = (name, value) => (name === "tag" ? `#${value}` : value);
  const on = [], off = [];
  for (const name of ["type", "tag", "path", "collection"]) {
    for (const value of state[name]) on.push(chip(app, name, value, say(name, value), name));
    for (const value of names[name] ?? [])
      if (!state[name].includes(value)) off.push(chip(app, name, value, say(name, value), name));
  }
  const dates = DAYS.map(([text, days]) => {
    const day = new Date(Date.now() - days * 86_400_000).toISOString().slice(0, 10);
    return [text, day];
  });
  for (const name of ["after", "before"]) {
    if (!state[name]) continue;
    const said = name === "after" && dates.find(([, day]) => day === state.after)?.[0];
    on.push(chip(app, name, state[name], said || `${name} ${state[name]}`, "changed"));
  }
  for (const [text, day] of dates) if (state.after !== day) off.push(chip(app, "after", day, text, "changed"));
  // They are made anew: whoever stands on one stays there.
  const here = document.activeElement?.dataset.chip;
  const chips = [...on, ...off];
  $("chips").replaceChildren(...chips);
  if (here) chips.find((each) => each.dataset.chip === here)?.focus();
}

// ---------------------------------------------------------------- events

export function show(app, changed) {
  const field = $("query");
  if (field.value !== app.state.q) field.value = app.state.q;
  $("ask").hidden = !field.value.trim();
  if (changed && !app.state.open && matchMedia("(hover: hover)").matches) field.focus();
  $("search").classList.toggle("opened", Boolean(app.state.open || app.state.pane));
  const before = asked;
  run(app);
  if (asked === before) draw(app);
}

export function start(app) {
  const field = $("query");
  const type = debounce(() => app.go({ q: field.value, limit: "", open: "", line: "" }, { replace: true }), WAIT);
  field.addEventListener("input", (event) => {
    $("ask").hidden = !field.value.trim();
    if (!event.isComposing) type();
  });
  field.addEventListener("compositionend", type);
  $("form").addEventListener("submit", (event) => {
    event.preventDefault();
    type.cancel();
    const same = field.value === app.state.q && found;
    if (!same) app.go({ q: field.value, limit: "", open: "", line: "" });
    else links()[0]?.click();
  });
  $("ask").addEventListener("click", () => {
    type.cancel();
    if (field.value !== app.state.q) app.go({ q: field.value, limit: "", open: "", line: "" });
    askQuestion(app, field.value);
  });
  $("why").addEventListener("click", () => app.go({ pane: app.state.pane === "why" && !app.state.open ? "" : "why" }));
  $("more").addEventListener("click", () =>
    app.go({ limit: String(Math.min(100, Number(app.state.limit || STEP) + 20)) }, { replace: true }));
}

export function closePane(app) {
  const index = found?.results.findIndex((hit) => hit.id === app.state.open);
  app.go({ open: "", line: "", pane: "" });
  (links()[index] ?? $("query")).focus();
}

export function press(app, event) {
  const field = $("query");
  const all = links();
  const at = all.indexOf(document.activeElement);
  const target = event.target;
  const listed = target === field || at >= 0;
  if (event.key === "ArrowDown" && listed && all.length) {
    event.preventDefault();
    all[Math.min(at + 1, all.length - 1)].focus();
  } else if (event.key === "ArrowUp" && at >= 0) {
    event.preventDefault();
    (at ? all[at - 1] : field).focus();
  } else if ((event.key === "Home" || event.key === "End") && at >= 0) {
    event.preventDefault();
    all[event.key === "Home" ? 0 : all.length - 1].focus();
  } else if (event.key === "Escape") {
    if (document.querySelector("dialog[open]")) return;
    if (app.state.open || app.state.pane) {
      event.preventDefault();
      closePane(app);
    } else if (at >= 0) field.focus();
    else if (target === field && field.value) {
      event.preventDefault();
      field.value = "";
      app.go({ q: "", limit: "" }, { replace: true });
    }
  }
}
