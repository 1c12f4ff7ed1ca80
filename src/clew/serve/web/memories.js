// What agents and people keep: remembered, corrected, forgotten, and brought back.

import { ask, get } from "./api.js";
import { counted, debounce, el, empty, problem, toast, when } from "./dom.js";

const TYPES = ["semantic", "episodic", "procedural"];
const SHOWN = 50;

// Memories are a store of their own: the first one, unless the chosen one is a memory.
const here = (app, namespace) => ({ store: app.memory ?? "", namespace });

let parts = null;
let asked = 0;

export function show(app, box, changed) {
  if (!changed && parts) return list(app);
  const field = el("input", {
    id: "recall", type: "search", placeholder: "Recall by words or meaning", autocomplete: "off", value: app.state.q,
    "aria-label": "Recall by words or meaning",
  });
  field.addEventListener("input", debounce(() => app.go({ q: field.value, memory: "" }, { replace: true }), 120));
  parts = { field, summary: el("p", { role: "status", "aria-live": "polite" }), list: el("ul", { class: "memories" }) };
  box.replaceChildren(el("div", { class: "sheet" }, el("div", { class: "inner" },
    el("h1", { class: "hidden" }, "Memories"),
    el("form", { role: "search", onsubmit: (event) => event.preventDefault() }, field, el("kbd", { "aria-hidden": "true" }, "/")),
    remember(app), el("div", { class: "summary" }, parts.summary), parts.list)));
  if (matchMedia("(hover: hover)").matches) field.focus();
  return list(app);
}

function remember(app) {
  const text = el("textarea", { id: "content", rows: 2, required: true, maxlength: 100000, "aria-label": "Something to remember", placeholder: "Remember something …" });
  const type = el("select", null, TYPES.map((name) => el("option", { value: name }, name)));
  const importance = el("input", { type: "range", min: 0, max: 1, step: 0.1, value: 0.5 });
  const tags = el("input", { placeholder: "tags, with commas", size: 18, "aria-label": "Tags, with commas between them" });
  const form = el("form", { class: "remember", "aria-label": "Remember" }, text,
    el("div", { class: "line" }, el("label", null, "Kind", type), el("label", null, "Importance", importance), tags,
      el("button", { class: "primary" }, "Remember")));
  text.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
  });
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    try {
      const made = await ask("POST", "memories", { parameters: here(app), body: {
        content: text.value, type: type.value, importance: Number(importance.value),
        tags: tags.value.split(",").map((each) => each.trim().replace(/^#/, "")).filter(Boolean),
      } });
      form.reset();
      toast(made.status === "duplicate" ? "That is known already." : "Remembered.",
        made.status === "created" ? { label: "Undo", act: () => end(app, { id: made.id, namespace: "default" }, false) } : {});
      parts.spaces = null;
      if (app.state.q) app.go({ q: "" });
      parts.field.value = "";
      await list(app);
    } catch (error) {
      toast(error.message);
    }
  });
  return form;
}

// Whose memories there are: the list has all of them, and so has what is recalled.
async function spaces(app) {
  await app.ready;
  const { namespaces } = app.memory ? await get("status", here(app)) : {};
  return Object.keys(namespaces ?? {}).slice(0, 100);
}

async function list(app) {
  const { q } = app.state;
  if (parts.field.value !== q && document.activeElement !== parts.field) parts.field.value = q;
  const mine = ++asked;
  try {
    if (q.trim()) parts.spaces ??= spaces(app);
    const found = q.trim()
      ? await get("recall", { ...here(app, await parts.spaces), q, k: 20, record_access: "false" })
      : await get("memories", { ...here(app), limit: SHOWN });
    if (mine !== asked) return;
    const memories = found.results ?? found.memories;
    parts.summary.textContent = memories.length
      ? q.trim() ? `${counted(memories.length, "memory", "memories")} for these words` : `The newest ${memories.length > 1 ? memories.length : "one"}`
      : "";
    parts.list.replaceChildren(...memories.map((memory) => item(app, memory)));
    if (!memories.length) parts.list.replaceChildren(el("li", null, empty(q.trim() ? "Nothing is remembered of that." : "Nothing is remembered yet.")));
  } catch (error) {
    parts.spaces = null;
    if (mine === asked) parts.list.replaceChildren(el("li", null, problem(error)));
  }
}

function item(app, memory) {
  const row = el("li", { class: "memory", "data-id": memory.id, "data-namespace": memory.namespace });
  const past = el("div", { class: "past-box" });
  const history = el("button", { type: "button", class: "link", "aria-expanded": "false" }, "History");
  const open = async () => {
    const shown = past.childElementCount > 0;
    history.setAttribute("aria-expanded", String(!shown));
    past.replaceChildren(...(shown ? [] : await chain(app, memory)));
    past.querySelector("input")?.focus();
  };
  history.addEventListener("click", () => app.go({ memory: app.state.memory === memory.id ? "" : memory.id }));
  row.append(
    el("p", { class: "content" }, memory.content),
    el("div", { class: "facts-line" },
      el("span", null, memory.type), memory.namespace === "default" ? "" : el("span", null, memory.namespace),
      el("span", null, `importance ${Math.round(memory.importance * 100) / 100}`),
      when(memory.created_at) ?? "", (memory.tags ?? []).map((tag) => el("span", { class: "tag" }, `#${tag}`)),
      el("span", { class: "acts" }, history,
        el("button", { type: "button", class: "link", onclick: () => forget(app, memory) }, "Forget"))),
    past);
  if (app.state.memory === memory.id) open();
  return row;
}

async function chain(app, memory) {
  let versions;
  try {
    versions = (await get(`memories/${encodeURIComponent(memory.id)}`, here(app, memory.namespace))).memories;
  } catch (error) {
    return [problem(error)];
  }
  const words = el("input", { "aria-label": "What is true instead", placeholder: "What is true instead …", maxlength: 100000, required: true });
  const form = el("form", { class: "correct" }, words, el("button", { class: "primary" }, "Correct"));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    try {
      const made = await ask("POST", `memories/${encodeURIComponent(memory.id)}/supersede`, { parameters: here(app, memory.namespace), body: { content: words.value } });
      toast("Corrected; what was true before stays in the history.");
      app.go({ memory: made.id });
    } catch (error) {
      toast(error.message);
    }
  });
  return [
    el("ol", { class: "past", "aria-label": "History, newest first" }, versions.map((each) =>
      el("li", { class: each.ended_at ? "" : "now" }, el("p", null, each.content),
        el("div", { class: "facts-line" },
          el("span", null, "since ", when(each.valid_from || each.created_at, { exact: true })),
          each.ended_at || each.valid_to ? el("span", null, `${each.reason || "till"} `, when(each.ended_at ?? each.valid_to, { exact: true })) : el("span", null, "in use"),
          el("span", null, `recalled ${counted(each.accesses ?? 0, "time")}`))))),
    form];
}

async function end(app, memory, offer = true) {
  try {
    await ask("DELETE", `memories/${encodeURIComponent(memory.id)}`, { parameters: here(app, memory.namespace) });
    if (offer) toast("Forgotten.", { label: "Undo", act: () => restore(app, memory), seconds: 12 });
    else await list(app);
  } catch (error) {
    toast(error.message);
  }
}

const rowOf = ({ id, namespace }) =>
  [...parts.list.children].find(({ dataset }) => dataset.id === id && dataset.namespace === namespace);

async function forget(app, memory) {
  await end(app, memory);
  const row = rowOf(memory);
  if (!row) return;
  row.classList.add("gone");
  row.querySelector(".past-box").replaceChildren();
  row.querySelector(".acts").replaceChildren(el("span", null, "forgotten"),
    el("button", { type: "button", class: "link", onclick: () => restore(app, memory) }, "Bring back"));
  row.querySelector(".acts button").focus();
}

async function restore(app, memory) {
  try {
    await ask("POST", `memories/${encodeURIComponent(memory.id)}/restore`, { parameters: here(app, memory.namespace) });
    toast("It is back.");
    await list(app);
    rowOf(memory)?.querySelector("button")?.focus();
  } catch (error) {
    toast(error.message);
  }
}
