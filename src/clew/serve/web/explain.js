// Why the list is as it is: what each source adds to each hit, and where the time went.

import { counted, el, milliseconds, svg } from "./dom.js";
import { lineOf } from "./search.js";

const COLOURS = 8;

function hues(trace, hits) {
  const names = [...Object.keys(trace.sources ?? {}), ...hits.flatMap((hit) => Object.keys(hit.signals))];
  const seen = [...new Set(names)].filter((name) => name !== "reranker");
  const made = new Map(seen.map((name, index) => [name, `s${index % COLOURS}${index >= COLOURS ? " again" : ""}`]));
  return made.set("reranker", "reranker");
}

const share = (signal) => signal.part ?? signal.contrib ?? 0;

function rect(start, width, hue, label, { y = 0, height = 14 } = {}) {
  const wide = Math.min(Math.max(width, width > 0 ? 0.5 : 0), 100);
  return svg("rect", {
    class: hue, x: `${Math.min(start, 100 - wide).toFixed(2)}%`, y, width: `${wide.toFixed(2)}%`, height, rx: 1.5,
  }, svg("title", null, label));
}

// One bar on one scale for all hits, its parts in the order of the sources, so that they compare.
export function contributions(hit, trace, heaviest, { thin = false } = {}) {
  const colours = hues(trace ?? {}, [hit]);
  const parts = [...colours].filter(([name]) => hit.signals[name]);
  if (!parts.length || !heaviest) return "";
  const height = thin ? 4 : 14;
  let start = 0;
  const bars = parts.map(([name, hue]) => {
    const width = (100 * Math.abs(share(hit.signals[name]))) / heaviest;
    const bar = rect(start, width, hue, `${name} adds ${share(hit.signals[name]).toFixed(4)}`, { height });
    start += width;
    return bar;
  });
  const said = parts.map(([name]) => `${name} ${share(hit.signals[name]).toFixed(2)}`).join(", ");
  return svg("svg", { class: thin ? "stack thin" : "stack", height, role: "img", "aria-label": `Score ${hit.score.toFixed(3)}: ${said}` }, bars);
}

const weight = (value) => (value === null || value === undefined ? "–" : String(Math.round(value * 100) / 100));
const numbers = (values, tag = "td") => values.map((value) => el(tag, { class: "number" }, value));
const named = (name, colours) => [el("span", { class: `dot ${colours.get(name) ?? ""}`, "aria-hidden": "true" }), name];

function aboutHit(hit, trace, heaviest, colours) {
  const parts = Object.entries(hit.signals).sort((a, b) => share(b[1]) - share(a[1]) || (a[0] < b[0] ? -1 : 1));
  const because = trace.confidence?.because?.[hit.id];
  const sure = hit.chance === null || hit.chance === undefined ? "" :
    el("p", { class: "said" },
      `${Math.round(hit.chance * 100)} % likely to be what was meant`,
      because ? `: it has ${Math.round((because.coverage ?? 0) * 100)} % of the words, and its meaning is ${near(because.nearness)}.` : ".");
  return el("section", { class: "block" },
    el("h2", null, "This hit"),
    el("p", { class: "subject" }, hit.title || hit.path || hit.id),
    contributions(hit, trace, heaviest),
    el("div", { class: "wide" }, el("table", null,
      el("thead", null, el("tr", null, el("th", { scope: "col" }, "source"), ["rank", "score", "weight", "adds"].map((name) => el("th", { scope: "col", class: "number" }, name)))),
      el("tbody", null, parts.map(([name, signal]) => el("tr", null,
        el("th", { scope: "row" }, named(name, colours)),
        numbers([String(signal.rank ?? "–"), (signal.score ?? 0).toFixed(3), weight(signal.weight), share(signal).toFixed(4)])))),
      parts.length > 1 ? el("tfoot", null, el("tr", null, el("th", { scope: "row" }, "sum"), numbers(["", "", "", hit.score.toFixed(4)]))) : "")),
    sure);
}

const near = (value) => (value === undefined || value === null ? "unknown"
  : value > 0.2 ? "close" : value > 0.05 ? "fairly close" : value > 0 ? "loosely related" : "no closer than chance");

function allHits(app, hits, trace, heaviest, colours) {
  return el("section", { class: "block" },
    el("h2", null, "Who voted for what"),
    el("ul", { class: "legend" }, [...colours].filter(([name]) => hits.some((hit) => hit.signals[name])).map(([name]) =>
      el("li", null, named(name, colours)))),
    el("ol", { class: "bars" }, hits.map((hit) => el("li", null,
      el("a", {
        href: app.link({ open: hit.id, line: String(lineOf(hit)), pane: "why" }),
        "aria-current": hit.id === app.state.open && String(lineOf(hit)) === app.state.line ? "true" : null,
      }, hit.title || hit.path || hit.id),
      contributions(hit, trace, heaviest),
      el("span", { class: "number" }, hit.score.toFixed(3))))));
}

// Stages one after the other; sources side by side within the one that collects.
function spans(trace) {
  const made = [];
  let start = 0;
  for (const [stage, ms] of Object.entries(trace.stages_ms ?? {})) {
    made.push({ name: stage, start, ms, note: "" });
    if (stage === "collect")
      for (const [source, outcome] of Object.entries(trace.sources ?? {}))
        made.push({
          name: source, start: start + (outcome.start_ms ?? 0), ms: outcome.ms, inside: true,
          note: outcome.problem || counted(outcome.count, "candidate"), bad: Boolean(outcome.problem),
        });
    start += ms;
  }
  return [made, Math.max(trace.total_ms ?? 0, ...made.map((span) => span.start + span.ms))];
}

function waterfall(trace, colours, cache) {
  const [rows, total] = spans(trace);
  if (!total) return "";
  return el("section", { class: "block" },
    el("h2", null, cache ? `Where the time went (answered by the ${cache} cache)` : "Where the time went"),
    el("table", { class: "time" },
      el("thead", { class: "hidden" }, el("tr", null, ["stage", "from and to", "milliseconds"].map((name) => el("th", { scope: "col" }, name)))),
      el("tbody", null, rows.map((span) => el("tr", { class: span.inside ? "inside" : null },
        el("th", { scope: "row" }, span.name),
        el("td", { class: "bar" }, svg("svg", {
          height: 18, role: "img",
          "aria-label": `${milliseconds(span.ms)} from ${milliseconds(span.start)} on${span.note ? `, ${span.note}` : ""}`,
        },
          [0, 25, 50, 75, 100].map((x) => svg("line", { class: "tick", x1: `${x}%`, x2: `${x}%`, y1: 0, y2: 18 })),
          rect((100 * span.start) / total, (100 * span.ms) / total, span.inside ? colours.get(span.name) ?? "stage" : "stage",
            `${span.name}: ${milliseconds(span.ms)}${span.note ? `, ${span.note}` : ""}`, { y: span.inside ? 5 : 3, height: span.inside ? 8 : 12 }))),
        el("td", { class: "number" }, milliseconds(span.ms))))),
      el("tfoot", null, el("tr", null, el("th", { scope: "row" }, "in all"), el("td"), el("td", { class: "number" }, milliseconds(total))))));
}

function sources(trace, colours) {
  const asked = Object.entries(trace.sources ?? {});
  if (!asked.length) return "";
  return el("section", { class: "block" }, el("h2", null, "Who was asked"),
    el("div", { class: "wide" }, el("table", null,
      el("thead", null, el("tr", null, el("th", { scope: "col" }, "source"), ["weight", "found", "ms"].map((name) => el("th", { scope: "col", class: "number" }, name)))),
      el("tbody", null, asked.flatMap(([name, outcome]) => [
        el("tr", null, el("th", { scope: "row" }, named(name, colours)),
          numbers([weight(outcome.weight), outcome.count.toLocaleString("en"), outcome.ms.toFixed(1)])),
        outcome.problem ? el("tr", null, el("td", { colspan: 4, class: "problem" }, outcome.problem)) : "",
      ])))));
}

function fusion(trace) {
  const said = trace.fusion ?? {};
  const facts = [["strategy", said.strategy ?? "–"]];
  if (said.k !== undefined) facts.push(["k", said.k]);
  if (said.share_of_vectors !== undefined) facts.push(["share of vectors", `${Math.round(said.share_of_vectors * 100)} %`]);
  for (const [sign, value] of Object.entries(said.because ?? {}))
    facts.push([`because of ${sign.replaceAll("_", " ")}`, Number(value).toFixed(2)]);
  if (trace.terms?.length) facts.push(["words", trace.terms.map((group) => group[0]).filter(Boolean).join(", ")]);
  if (trace.rerank) facts.push(["read again", `${trace.rerank.read} of ${trace.rerank.of} passages${trace.rerank.model ? ` by ${trace.rerank.model}` : ""}`]);
  if (trace.late?.share !== undefined) facts.push(["late interaction", `${trace.late.read} of ${trace.late.of} read token by token: ${Math.round(100 * trace.late.share)} % of the score`]);
  if (trace.model) facts.push(["model", trace.model]);
  if (trace.embedded !== undefined) facts.push(["embedded", `${Math.round(trace.embedded * 100)} %`]);
  return el("section", { class: "block" }, el("h2", null, "How lists became one"),
    el("dl", { class: "facts" }, facts.map(([name, value]) => [el("dt", null, name), el("dd", null, value)])));
}

export function explanation(app, found, hit, heaviest) {
  const trace = found.trace ?? {};
  const colours = hues(trace, found.results);
  return [
    hit ? aboutHit(hit, trace, heaviest, colours) : "",
    found.results.length ? allHits(app, found.results, trace, heaviest, colours) : "",
    waterfall(trace, colours, found.cache),
    sources(trace, colours),
    fusion(trace),
  ];
}
