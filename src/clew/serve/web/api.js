// What the page asks of the server it came from, and of nobody else.

import { $ } from "./dom.js";

const KEY = "clew-token";

class Refusal extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

// A link to a server with a token carries it after the #, which no server gets to see.
export function takeToken() {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (!given) return;
  sessionStorage.setItem(KEY, given);
  history.replaceState(history.state, "", location.pathname + location.search);
}

let asking;
function askToken() {
  asking ??= new Promise((resolve) => {
    const dialog = $("token");
    dialog.addEventListener("close", () => {
      const text = $("token-text").value.trim();
      if (text) sessionStorage.setItem(KEY, text);
      asking = undefined;
      resolve(Boolean(text));
    }, { once: true });
    dialog.showModal();
  });
  return asking;
}

let store = "";
export const chooseStore = (name) => { store = name; };

function address(path, parameters = {}) {
  const url = new URL(path, document.baseURI);
  url.search = "";
  for (const [name, value] of Object.entries({ store, ...parameters })) {
    if (value === undefined || value === null || value === "" || value === false) continue;
    for (const each of Array.isArray(value) ? value : [value]) url.searchParams.append(name, each);
  }
  return url;
}

async function request(method, path, { parameters, body, signal, accept } = {}) {
  const headers = { Accept: accept ?? "application/json" };
  const token = sessionStorage.getItem(KEY);
  if (token) headers.Authorization = `Bearer ${token}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let answer;
  try {
    answer = await fetch(address(path, parameters), {
      method, headers, signal, body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refusal(0, "The server does not answer. Is `clew serve` still running?");
  }
  if (answer.status === 401 && (await askToken()))
    return request(method, path, { parameters, body, signal, accept });
  if (answer.ok) return answer;
  const { error } = await answer.json().catch(() => ({})); // what stands between may answer otherwise
  throw new Refusal(answer.status, error ?? `The server answered ${answer.status} ${answer.statusText}.`);
}

export const ask = async (method, path, options) => (await request(method, path, options)).json();

export const get = (path, parameters, signal) => ask("GET", path, { parameters, signal });

// Server-sent events, read with fetch: EventSource cannot carry a token.
export async function* events(method, path, options) {
  const answer = await request(method, path, { ...options, accept: "text/event-stream" });
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let waiting = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const blocks = (waiting + value).split(/\r?\n\r?\n/);
    waiting = blocks.pop();
    for (const block of blocks) {
      let name = "message";
      const data = [];
      for (const line of block.split(/\r?\n/)) {
        if (line.startsWith("event:")) name = line.slice(6).trim();
        if (line.startsWith("data:")) data.push(line.slice(5).replace(/^ /, ""));
      }
      if (data.length) yield { name, data: JSON.parse(data.join("\n")) };
    }
  }
}
