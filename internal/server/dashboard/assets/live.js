// Connections to the service: calls, and the stream of a view.

const storageKey = "leased.secret";
const firstDelay = 500;
const longestDelay = 10000;
// The service sends something at least every ten seconds, so that a longer silence
// means that the connection is dead.
const silenceLimit = 25000;

// The secret stays in this tab: it is in no URL and in no cookie.
export const secret = {
  get: () => sessionStorage.getItem(storageKey) ?? "",
  set: (text) => sessionStorage.setItem(storageKey, text),
  clear: () => sessionStorage.removeItem(storageKey),
};

// serviceClock is the wall clock of the service, by which it writes times. The clock of
// the browser may differ.
let clockDifference = 0;
export const serviceClock = {
  set: (text) => { clockDifference = Date.parse(text) - Date.now() || 0; },
  now: () => Date.now() + clockDifference,
};

// ServiceError is an error that the service has answered with.
export class ServiceError extends Error {
  constructor(status, body) {
    super(body?.message || `The service answered with the status ${status}.`);
    this.status = status;
    this.code = body?.code ?? "";
    this.hint = body?.hint ?? "";
  }

  // rejectsSecret reports whether the caller has to sign in.
  get rejectsSecret() {
    return this.status === 401 || this.code === "unauthenticated";
  }
}

function headers(text) {
  return text ? { Authorization: `Bearer ${text}` } : {};
}

async function failed(response) {
  let body = null;
  try {
    body = await response.json();
  } catch {
    // A proxy may answer with something else.
  }
  return new ServiceError(response.status, body);
}

// me returns what the service knows about the caller with a secret.
export async function me(text) {
  const response = await fetch("/ui/me", { headers: headers(text), cache: "no-store" });
  if (!response.ok) throw await failed(response);
  return response.json();
}

// call makes a call of the API, such as "break".
export async function call(method, request) {
  const response = await fetch(`/v1/${method}`, {
    method: "POST",
    headers: { "Content-Type": "application/json", ...headers(secret.get()) },
    body: JSON.stringify(request),
  });
  if (!response.ok) throw await failed(response);
  return response.json();
}

// Live reads the stream of a view until close, and connects again after a failure. It
// calls onEvent(type, data) for each event, also with a failure for a view that the caller
// has no right to, which it does not ask for again. It calls onState(state, detail) with "live",
// "reconnecting" (detail: error, delay and failures, the number of attempts that failed
// in a row) or "signed-out" (detail: error).
export class Live {
  constructor(query, onEvent, onState) {
    this.url = `/ui/live?${query}`;
    this.onEvent = onEvent;
    this.onState = onState;
    this.closed = false;
    this.succeeded();
    this.connect();
  }

  succeeded() {
    this.delay = firstDelay;
    this.failures = 0;
  }

  close() {
    this.closed = true;
    clearTimeout(this.retry);
    clearTimeout(this.silence);
    this.abort?.abort();
  }

  // reconnect connects at once if it waits for the next attempt.
  reconnect() {
    if (!this.waiting || this.closed) return;
    clearTimeout(this.retry);
    this.connect();
  }

  async connect() {
    this.waiting = false;
    this.abort = new AbortController();
    let error = null;
    try {
      const response = await fetch(this.url, { headers: headers(secret.get()), signal: this.abort.signal, cache: "no-store" });
      if (!response.ok) throw await failed(response);
      await this.read(response.body.getReader());
    } catch (e) {
      error = e;
    }
    clearTimeout(this.silence);
    if (this.closed) return;
    if (error instanceof ServiceError && error.rejectsSecret) {
      this.close();
      this.onState("signed-out", { error });
      return;
    }
    if (error instanceof ServiceError && error.status === 403) {
      this.close();
      this.onState("live", {});
      this.onEvent("failure", error);
      return;
    }
    // A member ends the stream when the leader changes, which is no failure.
    this.failures += 1;
    const delay = this.delay * (0.75 + Math.random() / 2);
    this.delay = Math.min(this.delay * 2, longestDelay);
    this.waiting = true;
    this.retry = setTimeout(() => this.connect(), delay);
    this.onState("reconnecting", { error, delay, failures: this.failures });
  }

  async read(reader) {
    const decoder = new TextDecoder();
    let rest = "";
    this.listen();
    for (;;) {
      const { done, value } = await reader.read();
      if (done || this.closed) return;
      this.listen();
      const blocks = (rest + decoder.decode(value, { stream: true })).split("\n\n");
      rest = blocks.pop();
      for (const block of blocks) this.dispatch(block);
    }
  }

  // listen restarts the time that the stream may be silent.
  listen() {
    clearTimeout(this.silence);
    this.silence = setTimeout(() => this.abort.abort(), silenceLimit);
  }

  // dispatch parses one event of the stream; a block of comments has no data.
  dispatch(block) {
    let type = "message";
    const data = [];
    for (const line of block.split("\n")) {
      if (line.startsWith("event:")) type = line.slice(6).trim();
      else if (line.startsWith("data:")) data.push(line.slice(5).trimStart());
    }
    if (data.length === 0 || this.closed) return;
    const message = JSON.parse(data.join("\n"));
    if (type === "failure") {
      const error = new ServiceError(200, message);
      if (error.rejectsSecret) {
        this.close();
        this.onState("signed-out", { error });
        return;
      }
    } else {
      this.succeeded();
    }
    this.onState("live", {});
    this.onEvent(type, message);
  }
}
