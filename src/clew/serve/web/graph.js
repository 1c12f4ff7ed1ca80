// The knowledge graph as a picture one can walk: all of it in outline, or one entity and what is
// near it. The trail of where one came from is the thread back.

import { get } from "./api.js";
import { counted, el, empty, problem, short, svg } from "./dom.js";

const NEAR = 16;
let trail = [];
let drawn = "";

export async function show(app, box, changed) {
  const { entity } = app.state;
  const key = JSON.stringify([entity, app.state.store]);
  if (!changed && key === drawn) return;
  drawn = key;
  let data, picture;
  try {
    [data, picture] = await Promise.all([
      get("graph", entity ? { entity, limit: 40 } : {}), get("graph/picture", { entity, limit: entity ? 40 : 70 })]);
  } catch (error) {
    if (drawn === key) box.replaceChildren(page(app, problem(error), [field(app)]));
    return;
  }
  if (drawn !== key) return;
  if (!entity) trail = [];
  else if (trail.includes(data.name)) trail = trail.slice(0, trail.indexOf(data.name) + 1);
  else trail = [...trail, data.name].slice(-8);
  const focus = box.contains(document.activeElement);
  box.replaceChildren(entity ? nearby(app, data, picture) : outline(app, data, picture));
  if (focus && entity) box.querySelector(".centre")?.focus();
}

const walk = (app, entity) => app.link({ view: "graph", entity, q: "", open: "", line: "", pane: "" });
const open = (app, id) => app.link({ view: "search", open: id, line: "1", entity: "", q: "", pane: "" });
const tie = ({ relation, direction }) =>
  (relation === "together" ? "" : direction === "from" ? `${relation} of` : relation);
const radius = (node) => 4 + Math.min(9, 1.6 * Math.sqrt(node.weight));

function field(app) {
  const input = el("input", { type: "search", placeholder: "Go to a name", "aria-label": "Go to a name in the graph", autocomplete: "off" });
  return el("form", { role: "search", onsubmit: (event) => {
    event.preventDefault();
    if (input.value.trim()) app.go({ entity: input.value.trim() });
  } }, input);
}

function page(app, picture, side) {
  const names = el("ol", { class: "trail", "aria-label": "The way here" },
    el("li", null, el("a", { href: walk(app, ""), "aria-current": trail.length ? null : "page" }, "Everything")),
    trail.map((name, index) => el("li", null,
      el("a", { href: walk(app, name), "aria-current": index === trail.length - 1 ? "page" : null }, name))));
  return el("div", { class: "picture" }, el("div", { class: "canvas" }, names, picture), el("aside", { class: "side", "aria-label": "Details" }, side));
}

// ---------------------------------------------------------------- one entity

// Two may be related in several ways: one node, the way that says most, the strongest tie.
function merge(related) {
  const named = new Map();
  for (const each of related) {
    const known = named.get(each.name);
    if (!known) named.set(each.name, { ...each });
    else if (known.relation === "together") Object.assign(known, each, { weight: Math.max(known.weight, each.weight) });
  }
  return [...named.values()];
}

function nearby(app, data, { nodes: shown }) {
  const titles = new Map(shown.filter((node) => node.record).map((node) => [node.record, node.name]));
  const related = merge(data.related).slice(0, NEAR);
  const narrow = innerWidth < 700;
  const width = narrow ? 380 : 860, height = Math.max(narrow ? 300 : 420, 44 * Math.ceil(related.length / 2) + 60);
  const centre = { x: width / 2, y: height / 2 };
  const most = Math.max(1e-9, ...related.map((each) => each.weight));
  // Two arcs, evenly spaced from top to bottom, so that no name covers another.
  const sides = [related.filter((_, index) => index % 2 === 0), related.filter((_, index) => index % 2)];
  const nodes = sides.flatMap((some, side) => some.map((each, index) => {
    const turn = some.length > 1 ? (index / (some.length - 1)) * 2 - 1 : 0;
    const bow = Math.sqrt(Math.max(0, 1 - (turn * 0.86) ** 2));
    return { ...each, right: side === 0, x: centre.x + (side ? -1 : 1) * width * (0.1 + 0.16 * bow), y: centre.y + turn * (height / 2 - 34) };
  }));
  const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": `${data.name} and what is near it` },
    nodes.map((node) => svg("path", {
      class: node.weight > most / 2 ? "edge strong" : "edge", "stroke-width": (1 + (3 * node.weight) / most).toFixed(2),
      d: `M${centre.x} ${centre.y}Q${(centre.x + node.x) / 2} ${node.y} ${node.x} ${node.y}`,
    })),
    nodes.map((node) => {
      const relation = tie(node);
      const shift = node.right ? 12 : -12, anchor = node.right ? "start" : "end";
      return [svg("a", { class: "node", href: walk(app, node.name), "aria-label": `${node.name}${relation ? `, ${relation}` : ", named together"}` },
        svg("title", null, node.name),
        svg("circle", { class: relation ? "s0" : "stage", cx: node.x, cy: node.y, r: 4 + (4 * node.weight) / most }),
        svg("text", { x: node.x + shift, y: node.y + (relation ? 1 : 4.5), "text-anchor": anchor }, short(node.name, narrow ? 15 : 28))),
      relation ? svg("text", { class: "small", "aria-hidden": "true", x: node.x + shift, y: node.y + 15, "text-anchor": anchor }, short(relation, 20)) : ""];
    }),
    svg("a", { class: "node centre", href: walk(app, data.name), "aria-label": data.name, tabindex: "-1" },
      svg("circle", { cx: centre.x, cy: centre.y, r: 13 }),
      svg("text", { x: centre.x, y: centre.y - 22, "text-anchor": "middle" }, short(data.name, 34))));
  const more = data.spellings.filter((each) => each !== data.name);
  return page(app, picture, [
    field(app), el("h1", null, data.name),
    el("p", { class: "kind" }, `${data.kind}, ${counted(data.mentions, "mention")}`, more.length ? `; also ${more.slice(0, 6).join(", ")}` : ""),
    el("h2", null, counted(data.records.length, "record")),
    el("ul", null, data.records.slice(0, 30).map((id) => el("li", null, el("a", { href: open(app, id) }, titles.get(id) ?? id.replace(/^[^:]*:/, ""))))),
    el("h2", null, "Near it"),
    el("ul", null, related.map((each) => el("li", null, el("a", { href: walk(app, each.name) }, each.name),
      tie(each) ? el("small", null, tie(each)) : ""))),
  ]);
}

// ---------------------------------------------------------------- all of it

// Springs and repulsion from fixed beginnings: the same graph always settles alike.
function settle(nodes, edges, width, height) {
  nodes.forEach((node, index) => {
    const turn = index * 2.399963, far = 16 * Math.sqrt(index + 1);
    Object.assign(node, { x: Math.cos(turn) * far, y: Math.sin(turn) * far, dx: 0, dy: 0 });
  });
  for (let heat = 1; heat > 0.02; heat *= 0.985) {
    for (const a of nodes) for (const b of nodes) {
      if (a === b) continue;
      const x = a.x - b.x, y = (a.y - b.y) * 1.6, push = 1700 / (x * x + y * y + 30);
      a.dx += x * push * 0.05;
      a.dy += y * push * 0.05;
    }
    for (const [from, to] of edges) {
      const a = nodes[from], b = nodes[to], x = b.x - a.x, y = b.y - a.y;
      a.dx += x * 0.012; a.dy += y * 0.012; b.dx -= x * 0.012; b.dy -= y * 0.012;
    }
    for (const node of nodes) {
      node.dx -= node.x * 0.012; node.dy -= node.y * 0.02;
      node.x += Math.max(-20, Math.min(20, node.dx)) * heat;
      node.y += Math.max(-20, Math.min(20, node.dy)) * heat;
      node.dx *= 0.6; node.dy *= 0.6;
    }
  }
  const fit = (name, room, margin) => {
    const values = nodes.map((node) => node[name]), least = Math.min(...values), range = Math.max(...values) - least || 1;
    for (const node of nodes) node[name] = margin + ((node[name] - least) / range) * (room - 2 * margin);
  };
  fit("x", width, width < 500 ? 50 : 90);
  fit("y", height, 30);
}

// What hangs on nothing that is drawn would only float about.
function linked({ nodes, edges }) {
  const tied = new Set(edges.flatMap(({ from, to }) => [from, to]));
  const kept = tied.size ? nodes.filter((node) => tied.has(node.id)) : nodes;
  const place = new Map(kept.map((node, index) => [node.id, index]));
  return { nodes: kept, edges: edges.map(({ from, to }) => [place.get(from), place.get(to)]) };
}

function outline(app, data, drawing) {
  const { nodes, edges } = linked(drawing);
  const narrow = innerWidth < 700;
  const width = narrow ? 420 : 1000, height = narrow ? 460 : 680;
  settle(nodes, edges, width, height);
  const themes = [...new Set(nodes.map((node) => node.theme ?? -1))].sort((a, b) => a - b);
  const hue = (node) => ((node.theme ?? -1) < 0 ? "stage" : `s${themes.indexOf(node.theme) % 8}`);
  const labelled = labels(nodes, width, narrow ? 9 : 12);
  const picture = nodes.length ? svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": "Foremost names and records, coloured by theme" },
    edges.map(([from, to]) => svg("line", { class: "edge", x1: nodes[from].x, y1: nodes[from].y, x2: nodes[to].x, y2: nodes[to].y })),
    nodes.map((node) => {
      const { record } = node;
      return svg("a", {
        class: "node", href: record ? open(app, record) : walk(app, node.name),
        "aria-label": `${node.name}, ${record ? "record" : `${node.kind} in ${counted(node.weight, "record")}`}`,
      },
        svg("title", null, node.name),
        record ? svg("rect", { class: hue(node), x: node.x - 4, y: node.y - 4, width: 8, height: 8, rx: 1.5 })
          : svg("circle", { class: hue(node), cx: node.x, cy: node.y, r: radius(node) }));
    }),
    svg("g", { class: "names", "aria-hidden": "true" }, [...labelled].map((node) => svg("text", {
      x: node.x, y: node.y - (node.record ? 9 : radius(node) + 5), "text-anchor": "middle",
      class: node.record ? "small" : null,
    }, short(node.name, narrow ? 16 : 24))))) : empty("The graph has no names yet.");
  return page(app, picture, [
    field(app), el("h1", null, "The graph"),
    el("p", { class: "kind" }, [counted(data.records, "record"), counted(data.entities, "name"), counted(data.relations, "relation")].join(", ")),
    el("h2", null, "Foremost names"),
    el("ul", null, (data.foremost ?? []).slice(0, 12).map((each) => el("li", null, el("a", { href: walk(app, each.name) }, each.name), el("small", null, counted(each.records, "record"))))),
    data.themes?.length ? el("h2", null, "Themes") : "",
    el("ul", null, (data.themes ?? []).map((theme) => el("li", null, theme.title, el("small", null, counted(theme.size, "record"))))),
  ]);
}

// The largest are named first; a name that would cover another waits for the pointer.
function labels(nodes, width, size) {
  const taken = [], chosen = new Set();
  for (const node of [...nodes].sort((a, b) => Boolean(a.record) - Boolean(b.record) || b.weight - a.weight)) {
    const half = Math.min(24, Array.from(node.name).length) * size * 0.29 + 6;
    const spot = { left: node.x - half, right: node.x + half, top: node.y - 30, bottom: node.y + 2 };
    if (spot.left < 0 || spot.right > width) continue;
    if (taken.some((other) => spot.left < other.right && other.left < spot.right && spot.top < other.bottom && other.top < spot.bottom)) continue;
    taken.push(spot);
    chosen.add(node);
  }
  return chosen;
}
