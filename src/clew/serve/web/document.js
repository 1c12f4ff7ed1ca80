// One record as it was written, opened at its line or page.

import { get } from "./api.js";
import { counted, el, empty, problem, when } from "./dom.js";

const AROUND = 600; // lines on each side of the one that is meant; more on request

let kept = { key: "", record: null };

async function load(app, id) {
  const key = JSON.stringify([app.state.store, id]);
  if (kept.key !== key) kept = { key, record: await get(`records/${encodeURIComponent(id)}`) };
  return kept.record;
}

// The lines of a record, each with the number that a citation would give it. In what was extracted
// from another format that is a page, slide or row, known for the passages that begin with it.
function number(record) {
  const unit = record.metadata?.location_unit;
  const lines = record.content.split("\n");
  if (!unit) return { unit: "line", rows: lines.map((text, index) => ({ text, number: index + 1 })) };
  const starts = new Map();
  for (const { start, lines: [first] } of record.passages ?? []) if (!starts.has(start)) starts.set(start, first);
  let at = 0;
  let now = null;
  const sorted = [...starts].sort((a, b) => a[0] - b[0]);
  const rows = lines.map((text) => {
    const end = at + Array.from(text).length;
    while (sorted.length && sorted[0][0] <= end) now = sorted.shift()[1];
    at = end + 1;
    return { text, number: now };
  });
  return { unit, rows };
}

const DRESS = [
  [/^#{1,2} /, "h1"], [/^#{3,6} /, "h2"], [/^\s*(?:[-*+]|\d+[.)]) /, "item"], [/^\s*>/, "quote"], [/^\s*\|/, "cell"],
];

// Lines look like what they are, and stay the text they are: nothing of it is read as markup.
function dresser(record) {
  if (["code", "table", "html"].includes(record.type)) return () => "cell";
  let fenced = false;
  let front = false;
  let first = true;
  return (text) => {
    if (first && text.trim() === "---") front = true;
    else if (front && text.trim() === "---") { front = false; return "front"; }
    first = false;
    if (front) return "front";
    if (/^\s*(```|~~~)/.test(text)) { fenced = !fenced; return "cell"; }
    if (fenced) return "cell";
    return DRESS.find(([pattern]) => pattern.test(text))?.[1] ?? "";
  };
}

const escape = (text) => text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");

// What the search highlighted, marked wherever it stands in the document.
function words(hit, q) {
  const found = new Set();
  for (const [start, end] of hit?.highlights ?? []) found.add(Array.from(hit.snippet).slice(start, end).join("").toLowerCase());
  if (!found.size) for (const word of q.match(/[\p{L}\p{N}][\p{L}\p{N}-]{2,}/gu) ?? []) found.add(word.toLowerCase());
  const all = [...found].filter(Boolean).slice(0, 50);
  if (!all.length) return null;
  return new RegExp(`(?<![\\p{L}\\p{N}])(?:${all.map(escape).join("|")})(?![\\p{L}\\p{N}])`, "giu");
}

function dressed(text, pattern) {
  if (!pattern) return [text];
  const pieces = [];
  let end = 0;
  for (const match of text.matchAll(pattern)) {
    pieces.push(text.slice(end, match.index), el("mark", null, match[0]));
    end = match.index + match[0].length;
  }
  return [...pieces, text.slice(end)];
}

function facts(app, record) {
  const said = [];
  if (record.path) said.push(el("span", { class: "place" }, record.path));
  if (record.updated_at) said.push(el("span", null, "changed ", when(record.updated_at)));
  return el("div", { class: "about" },
    el("p", { class: "facts-line" }, said),
    record.tags?.length ? el("p", { class: "tags" }, record.tags.map((tag) =>
      el("a", { class: "tag", href: app.link({ tag: [tag], view: "search", open: "", line: "", pane: "" }) }, `#${tag}`))) : "");
}

export async function showDocument(app, box, hit) {
  const { open: id, line } = app.state;
  let record;
  try {
    record = await load(app, id);
  } catch (error) {
    if (app.state.open === id) box.replaceChildren(problem(error));
    return;
  }
  if (app.state.open !== id) return;
  const { unit, rows } = number(record);
  const wanted = Number(line) || 1;
  const [from, to] = hit?.lines ?? [wanted, wanted];
  const dress = dresser(record);
  const pattern = words(hit, app.state.q);
  const classes = rows.map((row) => dress(row.text));
  const target = Math.max(0, rows.findIndex((row) => row.number !== null && row.number >= wanted));
  let first = Math.max(0, target - AROUND);
  let last = Math.min(rows.length, target + AROUND);

  const draw = (index) => {
    const { text, number: count } = rows[index];
    const fresh = count !== null && (index === 0 || rows[index - 1].number !== count);
    const inside = hit && count !== null && count >= from && count <= to;
    return el("div", {
      class: ["row", classes[index], inside ? "inside" : "", index === target && hit ? "target" : ""].filter(Boolean).join(" "),
      "data-line": count ?? "",
    },
      el("span", { class: "count", "data-count": fresh ? (unit === "line" ? count : `${unit} ${count}`) : "" }),
      el("span", { class: "text" }, text ? dressed(text, pattern) : "\u00a0"));
  };
  const range = (start, end) => Array.from({ length: end - start }, (_, index) => draw(start + index));
  const body = el("div", {
    class: `text-body ${unit === "line" ? "" : "paged"} ${record.type ?? ""}`, tabindex: "0", role: "region",
    "aria-label": `Text of ${record.title || record.path || record.id}`,
  }, range(first, last));
  const more = (text, act) => el("button", { type: "button", class: "link more", onclick: act }, text);
  const earlier = more("Show what stands before", () => {
    const start = Math.max(0, first - AROUND);
    earlier.after(...range(start, first));
    first = start;
    if (!first) earlier.remove();
  });
  const later = more("Show what follows", () => {
    const end = Math.min(rows.length, last + AROUND);
    later.before(...range(last, end));
    last = end;
    if (last === rows.length) later.remove();
  });
  if (first) body.prepend(earlier);
  if (last < rows.length) body.append(later);
  box.replaceChildren(
    el("h2", { class: "headline" }, record.title || record.path || record.id), facts(app, record),
    rows.length ? body : empty("There is no text in it."),
    el("p", { class: "end" }, unit === "line" ? counted(rows.length, "line") : ""));
  const pane = box.closest(".pane");
  const goal = body.querySelectorAll(".row")[target - first];
  // What can be seen from the top is not scrolled to: the title says more than the middle does.
  if (goal && goal.offsetTop > pane.clientHeight * 0.7) goal.scrollIntoView({ block: "center" });
  else pane.scrollTop = 0;
}
