import { Instant, parseDuration } from "./clock.js";
import { LeasedError, Unavailable, Uncertain, fromAnswer } from "./errors.js";

export type Answer = Readonly<Record<string, unknown>>;

/** Codes of errors for which no request was sent. */
const unsent = ["ECONNREFUSED", "ENOTFOUND", "EAI_AGAIN", "EHOSTUNREACH", "ENETUNREACH", "UND_ERR_CONNECT_TIMEOUT"];

/** Parts of the codes of errors of a certificate, for which no request was sent either. */
const untrusted = ["CERT_", "SELF_SIGNED", "UNABLE_TO_", "ERR_TLS_"];

/** Parts of the codes and messages of errors of an address that can never work: a wrong scheme, or a port that fetch refuses. */
const wrong = ["ERR_SSL_WRONG_VERSION", "ERR_SSL_PACKET_LENGTH", "ERR_SSL_UNSUPPORTED", "ERR_INVALID_URL", "bad port"];

const avoid = 30_000; // milliseconds for which calls do not follow to a leader that has failed

/** Returns the URL of an endpoint, which may lack the scheme and the port. */
export function address(endpoint: string): string {
  const text = endpoint.includes("://") ? endpoint : `http://${endpoint}`;
  const [scheme = "", , host = "", ...path] = text.split("/");
  if (!URL.canParse(text) || !["http:", "https:"].includes(scheme) || host.includes("@")) {
    throw new LeasedError("invalid", `"${endpoint.replace(/.*@/s, "")}" is not the address of a member`, "use a URL such as http://127.0.0.1:7420");
  }
  return [scheme, "", /:\d+$/.test(host) ? host : `${host}:7420`, ...path].join("/").replace(/\/$/, "");
}

/** Calls the service at one of its members. Calls leave a member that fails for the next one, and a follower for the leader. */
export class Transport {
  private current = 0;
  private readonly failed = new Map<string, Instant>(); // when an endpoint has last failed

  constructor(
    private readonly endpoints: readonly string[],
    private readonly headers: Readonly<Record<string, string>>,
    private readonly fetch: typeof globalThis.fetch,
  ) {
    if (endpoints.length === 0) throw new LeasedError("invalid", "a client needs the address of at least one member");
  }

  /**
   * Calls the service. After `limit` milliseconds the answer, or the next line of a stream, counts as lost. Lines of a
   * stream are passed to `each`.
   */
  async call(method: string, body: Answer, limit: number, signal?: AbortSignal, each?: (line: Answer) => void): Promise<Answer> {
    const text = JSON.stringify(body); // an error of the caller, such as a bigint in the metadata, is none of the service
    let cause: unknown;
    let rejected: LeasedError | undefined;
    for (let tries = 0; tries < this.endpoints.length; tries++) {
      const at = this.current;
      const endpoint = this.endpoints[at % this.endpoints.length] ?? "";
      const leave = (): void => {
        if (this.current === at) this.current++; // if many calls fail together, only one counts
      };
      const ends = new AbortController();
      const timer = setTimeout(() => ends.abort(new Error(`no answer within ${Math.ceil(limit)} ms`)), Math.ceil(limit));
      const abort = (): void => ends.abort(signal?.reason); // AbortSignal.any would leave a trace of each call in the caller's signal
      signal?.addEventListener("abort", abort);
      try {
        signal?.throwIfAborted();
        const response = await this.fetch(`${endpoint}/v1/${method}`, {
          method: "POST",
          headers: { "Content-Type": "application/json", ...this.headers },
          body: text,
          signal: ends.signal,
        });
        if ("sessionId" in body && response.ok) this.follow(response.headers.get("Leased-Leader"));
        if (!each) return decode(response.status, await response.text());
        for await (const line of lines(response)) {
          timer.refresh();
          each(decode(response.status, line));
        }
        return {};
      } catch (error) {
        const answered = error instanceof LeasedError;
        if (!answered && signal?.aborted) throw signal.reason;
        const rejects = answered && error.code === "unauthenticated";
        const waits = !answered && parseDuration(String(body["wait"] ?? "0s")) > limit && ends.signal.aborted; // as it was asked to
        if (waits || error instanceof Unavailable) leave(); // such as a member that cannot reach the leader
        else if (!answered || rejects || error instanceof Uncertain || !("code" in error.details)) { // it does not answer as a member does
          this.failed.set(endpoint, new Instant());
          leave();
        }
        if (rejects) { // other members may know the user already
          rejected = error;
          continue;
        }
        if (answered) throw error;
        cause = error instanceof Error && error.cause ? error.cause : error;
        if (!matches(cause, [...unsent, ...untrusted, ...wrong])) {
          throw new Uncertain("uncertain", `${endpoint} did not answer: ${String(cause)}`);
        }
      } finally {
        clearTimeout(timer);
        signal?.removeEventListener("abort", abort);
      }
    }
    if (rejected) throw rejected;
    if (matches(cause, wrong)) { // trying again does not help
      throw new LeasedError("invalid", `${this.endpoints.join(", ")} cannot be called: ${String(cause)}`, "check the scheme and the port");
    }
    if (matches(cause, untrusted)) {
      throw new LeasedError("invalid", `the certificate of ${this.endpoints.join(", ")} is not trusted: ${String(cause)}`, "set NODE_EXTRA_CA_CERTS, or pass a fetch that trusts the authority of the service");
    }
    throw new Unavailable("unreachable", `no member of the lock service can be reached at ${this.endpoints.join(", ")}: ${String(cause)}`);
  }

  /**
   * Sends the next calls to the leader, if it is one of the endpoints: the member has forwarded this one. It may reach a
   * leader for which calls have failed here.
   */
  private follow(leader: string | null): void {
    const at = this.endpoints.findIndex((endpoint) => endpoint.split("//")[1] === leader);
    const failed = this.failed.get(this.endpoints[at] ?? "");
    if (at >= 0 && !(failed && failed.elapsed() < avoid)) this.current = at;
  }
}

/** Reports whether the code of an error, or the message of one without a code, has one of these parts. */
function matches(error: unknown, parts: readonly string[]): boolean {
  const { code, message } = (error ?? {}) as { code?: unknown; message?: unknown };
  return parts.some((part) => String(code ?? message).includes(part));
}

/** Returns the lines of an answer as they arrive. */
async function* lines(response: Response): AsyncGenerator<string> {
  let rest = "";
  for await (const text of response.body?.pipeThrough(new TextDecoderStream()) ?? []) {
    const parts = (rest + text).split("\n");
    rest = parts.pop() ?? "";
    yield* parts;
  }
  if (rest) yield rest;
}

function decode(status: number, text: string): Answer {
  let answer: unknown;
  try {
    answer = JSON.parse(text || "{}");
  } catch {
    answer = undefined;
  }
  if (typeof answer !== "object" || answer === null) {
    const refused = status >= 400 && status < 500 && status !== 408 && status !== 429;
    const message = `the answer with status ${status} is not JSON; is this the port of a leased member?`;
    throw refused ? new LeasedError("invalid", message) : new Uncertain("uncertain", message);
  }
  if (status !== 200 || "code" in answer) throw fromAnswer(answer as Answer);
  return answer as Answer;
}
