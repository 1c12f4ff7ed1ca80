// An answer to the question in the search field, sentence by sentence, each with its sources.

import { events } from "./api.js";
import { $, el, problem } from "./dom.js";

let running = null;

export function closeAnswer() {
  running?.abort();
  running = null;
  $("answer").hidden = true;
  $("answer").replaceChildren();
}

const link = (app, citation, line) => (citation.namespace != null
  ? app.link({ view: "memories", q: "", memory: citation.id, open: "", line: "", pane: "" })
  : app.link({ open: citation.id, line: String(line ?? citation.lines?.[0] ?? 1), pane: "" }));

// Within what the chips leave.
function body({ store, type, tag, path, collection, after, before }, question) {
  const given = Object.entries({ store, type, tag, path, collection, after, before });
  return { question, ...Object.fromEntries(given.filter(([, value]) => value?.length)) };
}

export async function askQuestion(app, question) {
  closeAnswer();
  const mine = (running = new AbortController());
  const box = $("answer");
  const text = el("p", { class: "sentences", "aria-live": "polite" });
  const waiting = el("p", { class: "said" }, "Reading …");
  const close = el("button", { type: "button", class: "close", "aria-label": "Close the answer", onclick: closeAnswer }, "×");
  const sources = el("ol", { class: "sources" });
  box.replaceChildren(el("h2", null, "Answer"), close, waiting, text, sources);
  box.hidden = false;
  const known = new Map();
  const cite = (number, line) => {
    const citation = known.get(number);
    return citation ? el("a", { class: "cite", href: link(app, citation, line), title: citation.place }, `[${number}]`) : ` [${number}]`;
  };
  try {
    for await (const { name, data } of events("POST", "ask", { body: body(app.state, question), signal: mine.signal })) {
      if (running !== mine) return;
      if (name === "citation") known.set(data.number, data);
      else if (name === "sentence") {
        waiting.remove();
        text.append(el("span", { class: data.supported === false ? "unsure" : null, title: data.problem || null }, data.text),
          ...(data.citations ?? []).map((number) => cite(number, data.line)),
          data.supported === false ? el("span", { class: "badge med" }, "not in its source") : "", " ");
      } else if (name === "error") throw new Error(data.error ?? "The answer broke off.");
      else if (name === "done") {
        waiting.remove();
        for (const each of data.citations ?? []) known.set(each.number, each);
        if (data.found === false) text.replaceChildren("Not in your files.");
        else sources.replaceChildren(...(data.citations ?? []).map((each) =>
          el("li", { value: each.number }, el("a", { href: link(app, each) }, each.place))));
        box.append(el("p", { class: "said" }, data.model ? `Written by ${data.model} from these passages.` : data.found === false ? "" : "Quoted as it stands there; no chat model was asked.",
          ...(data.degraded ?? []).map((each) => ` ${each}.`)));
      }
    }
  } catch (error) {
    if (error.name === "AbortError" || running !== mine) return;
    waiting.remove();
    box.append(problem(error));
  }
}
