// The tree of what records are about: one node, its children and theirs, as wide as they are large.

import { get } from "./api.js";
import { counted, el, empty, problem, short, svg } from "./dom.js";

const ROW = 30; // pixels of one line of the picture
const MOST = 40; // children of one node in the picture; the list beside it has all
let way = [];
let drawn = "";

export async function show(app, box, changed) {
  const node = Number(app.state.node) || 0;
  const key = JSON.stringify([node, app.state.store]);
  if (!changed && key === drawn) return;
  drawn = key;
  let data;
  try {
    data = await get("tree", { node, depth: 2 });
  } catch (error) {
    if (drawn === key) box.replaceChildren(el("div", { class: "sheet" }, el("div", { class: "inner" }, problem(error))));
    return;
  }
  if (drawn !== key) return;
  const at = way.findIndex((each) => each.node === node);
  way = node === 0 ? [data] : at >= 0 ? way.slice(0, at + 1) : [...way, data];
  const focus = box.contains(document.activeElement);
  box.replaceChildren(el("div", { class: "picture" },
    el("div", { class: "canvas" }, trail(app, data), el("div", { class: "sheet" }, picture(app, data))),
    el("aside", { class: "side", "aria-label": "Details" }, side(app, data))));
  if (focus) box.querySelector(".node")?.focus();
}

const down = (app, child) => (child.id !== undefined
  ? app.link({ view: "search", open: child.id, line: "1", node: "", q: "", pane: "" })
  : app.link({ view: "tree", node: String(child.node), q: "", open: "", line: "", pane: "" }));
const name = (child) => (child.id !== undefined ? child.title || child.id : child.label);
const size = (child) => (child.id !== undefined ? 1 : Math.max(1, child.leaves));

function trail(app, data) {
  const steps = way[0]?.node === 0 ? way : [{ node: 0, label: "everything" }, ...way];
  return el("ol", { class: "trail", "aria-label": "The way here" }, steps.map((step) => el("li", null,
    el("a", { href: down(app, step), "aria-current": step.node === data.node ? "page" : null }, step.label))));
}

function side(app, data) {
  return [
    el("h1", null, data.label),
    el("p", { class: "kind" }, counted(data.leaves, "record"), data.stale ? ", and its summary is of an older state" : ""),
    el("p", null, data.summary),
    el("h2", null, "Below it"),
    el("ul", null, (data.children ?? []).map((child) => el("li", null, el("a", { href: down(app, child) }, name(child)),
      child.id === undefined ? el("small", null, counted(child.leaves, "record")) : ""))),
  ];
}

function picture(app, data) {
  const narrow = innerWidth < 700;
  const children = (data.children ?? []).slice(0, MOST);
  if (!children.length) return empty("There is nothing below this.");
  const width = narrow ? 400 : 940;
  const columns = narrow ? [12, 110, 250] : [16, 260, 580];
  // All of it on one screen where that can be; the rest is one step further down.
  const fit = Math.floor((innerHeight - 170) / ROW);
  const room = Math.max(3, Math.floor(fit / children.length) - 1);
  let y = 18;
  const rows = [];
  for (const child of children) {
    const below = (child.children ?? []).slice(0, room);
    const top = y;
    const leaves = below.map((each) => ({ ...each, y: (y += ROW) - ROW / 2 }));
    const hidden = (child.children?.length ?? 0) - below.length;
    if (!below.length) y += ROW;
    rows.push({ child, leaves, hidden, y: (top + y) / 2 });
    y += hidden > 0 && below.length ? 30 : below.length ? 14 : 2;
  }
  const height = y + 10, middle = height / 2, total = Math.max(1, data.leaves);
  const curve = (from, to, thick, strong) => {
    const half = (from.x + to.x) / 2;
    return svg("path", { class: strong ? "edge strong" : "edge", "stroke-width": thick.toFixed(1), d: `M${from.x} ${from.y}C${half} ${from.y} ${half} ${to.y} ${to.x} ${to.y}` });
  };
  const thick = (count) => Math.max(1.5, (26 * count) / total);
  const hue = (index) => `s${index % 8}`;
  const root = { x: columns[0] + 8, y: middle };
  const node = (child, at, index) => [svg("a", {
    class: child.id !== undefined ? "node leaf" : "node", href: down(app, child),
    "aria-label": child.id !== undefined ? `${name(child)}, record` : `${name(child)}, ${counted(child.leaves, "record")}`,
  },
    svg("title", null, name(child)),
    child.id !== undefined ? svg("rect", { x: at.x - 4, y: at.y - 5, width: 8, height: 10, rx: 1.5 })
      : svg("circle", { class: hue(index), cx: at.x, cy: at.y, r: 5 + Math.min(8, Math.sqrt(child.leaves)) }),
    svg("text", { x: at.x + (child.id !== undefined ? 10 : 17), y: at.y + 4.5 }, short(name(child), at.most))),
  child.id === undefined && at.count ? svg("text", { class: "small", "aria-hidden": "true", x: at.x + 17, y: at.y + 19 }, counted(child.leaves, "record")) : ""];
  return svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": `${data.label} and what is below it` },
    rows.map(({ child, y: at }) => curve(root, { x: columns[1], y: at }, thick(size(child)), true)),
    rows.flatMap(({ child, leaves, y: at }) => leaves.map((leaf) => curve({ x: columns[1], y: at }, { x: columns[2], y: leaf.y }, Math.min(6, thick(size(leaf)))))),
    svg("g", { class: "node centre" }, svg("circle", { cx: root.x, cy: root.y, r: 11 })),
    rows.map(({ child, y: at }, index) => node(child, { x: columns[1], y: at, most: narrow ? 16 : 32, count: true }, index)),
    rows.flatMap(({ leaves, hidden, child }) => [
      ...leaves.map((leaf, index) => node(leaf, { x: columns[2], y: leaf.y, most: narrow ? 18 : 42 }, index)),
      hidden > 0 && leaves.length ? svg("a", { class: "node", href: down(app, child) },
        svg("text", { class: "small", x: columns[2] + 10, y: leaves.at(-1).y + 20 }, `and ${hidden} more`)) : "",
    ]));
}
