// Elements are made here and nowhere else, and text enters them as text: there is no innerHTML in
// this page, so that what stands in documents, file names and queries stays what it is.

const NAMESPACE = "http://www.w3.org/2000/svg";
// Control characters and what turns the direction of writing: shown, not obeyed. One character for
// one, so that ranges stay where they are.
const UNSAFE = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/g;

const clean = (text) => String(text).replace(UNSAFE, "\ufffd");

export const short = (text, most) => {
  const characters = Array.from(clean(text));
  return characters.length > most ? `${characters.slice(0, most - 1).join("")}…` : text;
};

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "value" || name === "checked") node[name] = value;
    else node.setAttribute(name, value === true ? "" : clean(value));
  }
  for (const child of children.flat(3)) {
    if (child === null || child === undefined || child === false) continue;
    node.append(child instanceof Node ? child : document.createTextNode(clean(child)));
  }
  return node;
}

export const el = (tag, attributes, ...children) =>
  fill(document.createElement(tag), attributes, children);

export const svg = (tag, attributes, ...children) =>
  fill(document.createElementNS(NAMESPACE, tag), attributes, children);

export const $ = (id) => document.getElementById(id);

// Ranges count characters as Python does; a string of JavaScript counts halves of some of them.
export function marked(text, ranges) {
  const characters = Array.from(text);
  const pieces = [];
  let end = 0;
  for (const [start, stop] of ranges) {
    if (start < end) continue;
    pieces.push(characters.slice(end, start).join(""));
    pieces.push(el("mark", null, characters.slice(start, stop).join("")));
    end = stop;
  }
  pieces.push(characters.slice(end).join(""));
  return pieces;
}

const DAY = new Intl.DateTimeFormat(undefined, { dateStyle: "medium" });
const MOMENT = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });

export function when(seconds, { exact = false } = {}) {
  if (seconds === null || seconds === undefined) return null;
  const date = new Date(seconds * 1000);
  if (Number.isNaN(date.getTime())) return null;
  return el("time", { datetime: date.toISOString(), title: MOMENT.format(date) },
    (exact ? MOMENT : DAY).format(date));
}

export const counted = (count, noun, several = `${noun}s`) =>
  `${count.toLocaleString("en")} ${count === 1 ? noun : several}`;

export const milliseconds = (ms) => `${ms < 10 ? ms.toFixed(1) : Math.round(ms)} ms`;

export function debounce(call, wait) {
  let timer;
  const later = (...given) => {
    clearTimeout(timer);
    timer = setTimeout(call, wait, ...given);
  };
  later.cancel = () => clearTimeout(timer);
  return later;
}

let fading;
export function toast(text, { label, act, seconds = 8 } = {}) {
  const box = $("toast");
  clearTimeout(fading);
  const close = () => box.replaceChildren();
  box.replaceChildren(
    el("p", null, text),
    label ? el("button", { type: "button", onclick: () => { close(); act(); } }, label) : "",
    el("button", { type: "button", class: "quiet", "aria-label": "Close", onclick: close }, "×"),
  );
  // Somebody who is on their way to "Undo" is waited for.
  const fade = () => {
    if (box.matches(":hover, :focus-within")) fading = setTimeout(fade, 1000);
    else close();
  };
  fading = setTimeout(fade, seconds * 1000);
}

export const empty = (...said) => el("p", { class: "empty" }, ...said);
export const problem = (error) => el("p", { class: "problem", role: "alert" }, error.message);
