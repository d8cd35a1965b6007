/**
 * Middleware for Node.js HTTP servers that refuses stale writes. It cannot see what the handler writes: if the data lives in a storage
 * that has a gate, use that gate. Without one it protects data that is written through this one process only.
 */
import type { IncomingMessage, ServerResponse } from "node:http";

import { LeasedError, StaleToken } from "./errors.js";
import { HEADER, MAX_JUMP, admit, parseToken } from "./fences.js";

/** The newest token of each resource. */
export interface Marks {
  /** Admits a token and stores it, or throws StaleToken. */
  admit(resource: string, token: number): void | Promise<void>;
}

/** Marks in memory. After a restart the first token of each resource is admitted, however old it is. */
export class Memory implements Marks {
  private readonly marks = new Map<string, number>();

  admit(resource: string, token: number): void {
    const mark = this.marks.get(resource) ?? 0;
    admit(resource, mark, token);
    if (token > mark) this.marks.set(resource, token);
  }
}

/** Returns the resource that a request writes to, or undefined for one that is not gated. Two requests that can change the same data must have the same resource. */
export type ResourceFunc = (request: IncomingMessage) => string | undefined;

const reads = ["GET", "HEAD", "OPTIONS", "TRACE"];
const overrides = ["x-http-method-override", "x-http-method", "x-method-override"];

/**
 * Returns middleware, for `gate(req, res, () => handler(req, res))`, Express and Connect. Writes to one resource run one at a time: the next one begins when the
 * response is closed and the promise that `next` returned is settled, and the handler must have finished its writes then. The `next` of Express returns no promise, and
 * a client that disconnects closes the response of a handler that still runs: call the gate in the route. A read with a token raises the mark before the handler runs. If
 * `resource` or `marks` throws, the answer is 500.
 */
export function httpGate(resource: ResourceFunc, marks: Marks = new Memory()): (req: IncomingMessage, res: ServerResponse, next: () => unknown) => Promise<void> {
  const queues = new Map<string, Promise<void>>();
  /** Returns what ends the turn of a request, after its turn has come, or undefined if the handler is not to run. */
  const admitted = async (req: IncomingMessage, res: ServerResponse): Promise<(() => void) | undefined> => {
    try {
      const values = req.headersDistinct[HEADER.toLowerCase()] ?? [];
      if (values.length > 1) throw new LeasedError("invalid", "the request has several fencing tokens", "send one");
      const token = values[0] === undefined ? 0 : parseToken(values[0]);
      const query = new URLSearchParams(/\?(.*)/s.exec(req.url ?? "")?.[1]);
      const read = reads.includes(req.method ?? "") && !overrides.some((name) => req.headers[name]) && !query.has("_method");
      const name = read && token === 0 ? undefined : resource(req);
      if (name === undefined) return () => undefined;
      if (name === "" || Buffer.byteLength(name) > 512) {
        throw new LeasedError("invalid-resource", `"${name.slice(0, 80)}" is not a valid resource`, "a name has 1 to 512 bytes");
      }
      const before = queues.get(name);
      let leave = (): void => undefined;
      const mine = new Promise<void>((resolve) => (leave = resolve));
      const turn = (before ?? Promise.resolve()).then(() => mine);
      queues.set(name, turn);
      void turn.then(() => queues.get(name) === turn && queues.delete(name));
      try {
        await before;
        await marks.admit(name, token);
      } catch (error) {
        leave();
        throw error;
      }
      if (read || res.destroyed) leave(); // later writes need not wait for a reader
      return res.destroyed ? undefined : leave;
    } catch (error) {
      if (!res.headersSent && error instanceof LeasedError && /^(stale|invalid)/.test(error.code)) {
        problem(res, error);
        return undefined;
      }
      console.error(error); // nobody awaits the middleware: a rejection would end the process
      if (res.headersSent) res.destroy();
      else res.writeHead(500).end();
      return undefined;
    }
  };
  return async (req, res, next) => {
    const leave = await admitted(req, res);
    if (!leave) return;
    try {
      await next(); // its errors are those of the application: they must not pass for a refusal
    } finally {
      if (res.closed) leave();
      else res.once("close", leave);
    }
  };
}

/** Sends a refusal, as defined by RFC 9457 and sent by the Go gate. */
function problem(res: ServerResponse, error: LeasedError): void {
  const { jump, ...details } = error.details;
  const stale = error instanceof StaleToken;
  const [kind, title] =
    error.code === "invalid-resource" ? ["invalid-resource", "Invalid resource"]
    : !stale ? ["invalid-token", "Invalid fencing token"]
    : jump ? ["token-jump", "Fencing token jumps too far"]
    : details["token"] === 0 ? ["no-token", "No fencing token"]
    : ["stale-token", "Stale fencing token"];
  const status = stale ? 412 : 400;
  res.writeHead(status, { "Content-Type": "application/problem+json", "Cache-Control": "no-store" });
  res.end(JSON.stringify({ type: `urn:leased:problem:${kind}`, title, status, detail: error.message, ...details, ...(jump ? { maxJump: MAX_JUMP } : {}) }));
}
