/** Fences: the check of a token in the same atomic step as the write. All gates of leased, in any language, use the same marks. */
import { createHash } from "node:crypto";

import { LeasedError, StaleToken, Uncertain } from "./errors.js";
import type { Lease } from "./index.js";
import { CUSTOM, ENTER, KEYS_ONLY, ONE_KEY, WRITE } from "./lua.js";

/** The HTTP header that carries the token of a write. */
export const HEADER = "Fencing-Token";

/** The largest distance of a token above the mark, unless a gate has another bound. */
export const MAX_JUMP = 2 ** 40;

/** The part of a lease that a fence needs. */
export type Fenced = Pick<Lease, "token" | "resources" | "slot" | "gateResource">;

/** Parses the only text form of a token: decimal, without a sign, a space or a leading zero. 0 means none. */
export function parseToken(text: string): number {
  if (!/^(0|[1-9][0-9]{0,15})$/.test(text) || Number(text) > Number.MAX_SAFE_INTEGER) {
    throw new LeasedError("invalid", `${text.slice(0, 40)} is not a fencing token`, "send the decimal token of the lease");
  }
  return Number(text);
}

/** Applies the fencing rule: throws StaleToken unless a write with this token is admitted above the mark. */
export function admit(resource: string, mark: number, token: number, maxJump = MAX_JUMP): void {
  if (token < mark || token - mark > maxJump) throw refusal(resource, token, mark, token > mark);
}

function refusal(resource: string, token: number, mark: number, jump = false): StaleToken {
  const details = { resource, token, mark };
  if (jump) {
    return new StaleToken("stale", `fencing token ${token} for "${resource}" jumps too far above ${mark}`, "if the lock service granted it, an operator must raise the bound", { ...details, jump });
  }
  if (token === 0) {
    return new StaleToken("stale", `no fencing token: "${resource}" is fenced at ${mark}`, "acquire its lease and send the token with the write", details);
  }
  return new StaleToken("stale", `stale fencing token ${token} for "${resource}": ${mark} has been admitted`, "the lease is lost: stop writing", details);
}

/** Returns the names to give to a fence: all locks of a set, or one of them. */
function guards(lease: Fenced, resource?: string): readonly string[] {
  if (resource === undefined) return lease.resources.length > 1 ? lease.resources : [lease.gateResource];
  if (resource !== lease.gateResource && !lease.resources.includes(resource)) {
    throw new LeasedError("invalid", `the lease covers ${lease.resources.join(", ")}, not ${resource}`);
  }
  return [lease.slot > 0 ? lease.gateResource : resource];
}

/** The part of a node-postgres client that a fence needs. */
export interface Queryable {
  query(text: string, values?: unknown[]): Promise<unknown>;
}

/**
 * Admits the token of a lease in the transaction of a node-postgres client, before its first read. Create the functions with
 * `leased gate ddl --dialect postgres`. A refusal throws StaleToken; roll back then. A set admits its token for each of its locks,
 * unless `resource` names the one that guards the write.
 */
export async function fence(lease: Fenced, client: Queryable, resource?: string): Promise<void> {
  if ("totalCount" in client) {
    throw new LeasedError("invalid", "a pool runs each query on another connection, so the fence would guard nothing", "pass a client of the pool, inside a transaction");
  }
  const names = guards(lease, resource);
  try {
    await client.query("SAVEPOINT leased_fence; RELEASE SAVEPOINT leased_fence"); // fails outside a transaction
    for (const name of names) await client.query("SELECT leased_fence($1, $2)", [name, lease.token]);
  } catch (error) {
    throw explained(error, lease, names);
  }
}

/** Returns the error for a failed query of a fence. */
function explained(error: unknown, lease: Fenced, names: readonly string[]): unknown {
  switch ((error as { code?: unknown }).code) {
    case "LF001":
    case "LF002":
    case "LF003":
      return new StaleToken("stale", `token ${lease.token} of ${names.join(", ")} is refused: ${(error as Error).message}`, "the lease is lost: stop writing");
    case "25P01":
      return new LeasedError("invalid", "the connection is outside a transaction, so the fence would guard nothing", "send BEGIN, fence, write, and COMMIT");
    case "42883":
    case "3F000":
      return new LeasedError("invalid", "the database has no function leased_fence in its search path", "run 'leased gate ddl --dialect postgres | psql'");
    default:
      return error;
  }
}

/** A client of ioredis or node-redis. */
export type RedisClient =
  | {
      call(command: string, ...args: string[]): Promise<unknown>;
      on(event: "ready" | "close", listener: () => void): unknown;
      status: string;
      options: { autoResendUnfulfilledCommands?: boolean | undefined; enableAutoPipelining?: boolean | undefined; keyPrefix?: string | undefined };
    }
  | { sendCommand(args: string[]): Promise<unknown> };

/** A call of ioredis. One that is not sent waits for a connection, and must not count as lost: ioredis sends it later. */
interface PendingCall {
  sent: boolean;
  readonly reject: (error: Error) => void;
}

/** The calls of each ioredis client that are not settled. */
const pending = new WeakMap<object, Set<PendingCall>>();

const marks = "leased:mark:";
const maxArgs = 4000; // Lua passes them on its stack
const tag = (resource: string): string => resource.replace(/[%{}]/g, (c) => `%${c.charCodeAt(0).toString(16).toUpperCase()}`);

/** Returns a part of a reply as text. Both libraries can be told to return a Buffer. */
const text = (part: unknown): string => (part instanceof Uint8Array ? Buffer.from(part).toString() : String(part));

/** Returns the part of a key that decides its slot: the text in its first braces, or the whole key if there is none. */
const hashed = (key: string): string => /^[^{]*\{([^}]+)\}/.exec(key)?.[1] ?? key;

/** Returns the name of a key of a resource, in the slot of its mark. */
export const redisKey = (resource: string, suffix = ""): string => `{${tag(resource)}}${suffix}`;

/**
 * A gate for Redis: one script checks the token, writes and raises the mark. The mark is only as durable as the data: see
 * docs/GATES.md for the settings of the server. A gate sends each write once. If the answer is lost it throws Uncertain.
 */
export class RedisGate {
  constructor(
    private readonly client: RedisClient,
    private readonly options: { maxJump?: number; anySlot?: boolean } = {},
  ) {
    if ("slots" in client) {
      throw new LeasedError("invalid", "a cluster client sends a write again after a lost connection", "pass a client of the node that has the slot of the resource");
    }
    if (!("call" in client)) return;
    if (client.options.autoResendUnfulfilledCommands !== false) {
      throw new LeasedError("invalid", "ioredis would send a write again after a lost connection, and its refusal would hide that the first one has written", "create the client with autoResendUnfulfilledCommands: false");
    }
    if (client.options.enableAutoPipelining) {
      throw new LeasedError("invalid", "after a lost connection, ioredis with automatic pipelining would never send a write", "create the client without enableAutoPipelining");
    }
    if (client.options.keyPrefix) {
      throw new LeasedError("invalid", "with its keyPrefix, ioredis would keep the marks under keys that other writers do not read", 'create the client without keyPrefix, and name the keys with their prefix: "app:" + redisKey(resource)');
    }
    if (pending.has(client)) return;
    const calls = new Set<PendingCall>();
    pending.set(client, calls);
    client.on("ready", () => {
      for (const call of calls) call.sent = true; // ioredis has just sent what was waiting
    });
    client.on("close", () => { // without resending, ioredis never settles what it has sent
      for (const call of calls) {
        if (call.sent) call.reject(new Error("the connection was closed"));
      }
    });
  }

  /** Raises the mark, before the holder reads what it will change. */
  async enter(lease: Fenced, resource?: string): Promise<void> {
    await this.eval(lease, resource, ENTER, [], []);
  }

  /** Runs commands that each write one key, such as ["SET", key, value], in one step with the check. */
  async write(lease: Fenced, commands: readonly (readonly (string | number)[])[], resource?: string): Promise<void> {
    const keys: string[] = [];
    const args: string[] = [];
    for (const [name, key, ...rest] of commands) {
      const command = String(name).toUpperCase();
      if (!ONE_KEY.has(command) && !(KEYS_ONLY.has(command) && rest.length === 0)) {
        throw new LeasedError("invalid", `the command ${command} is not known to access exactly one key`, "use run with a script that declares its keys");
      }
      if (rest.length > maxArgs) throw new LeasedError("invalid", `${command} has ${rest.length} arguments, at most ${maxArgs} are allowed`, "use several commands");
      keys.push(String(key));
      args.push(command, String(rest.length), ...rest.map(String));
    }
    await this.eval(lease, resource, WRITE, keys, args);
  }

  /** Runs a Lua script, as for EVAL, if the token is admitted, and returns its result. */
  run(lease: Fenced, script: string, keys: readonly string[] = [], args: readonly (string | number)[] = [], resource?: string): Promise<unknown> {
    return this.eval(lease, resource, CUSTOM.replace("\nBODY\n", () => `\n${script}\n`), keys, args.map(String));
  }

  private async eval(lease: Fenced, resource: string | undefined, source: string, keys: readonly string[], args: readonly string[]): Promise<unknown> {
    const [name, ...others] = guards(lease, resource);
    if (name === undefined || others.length > 0) {
      throw new LeasedError("invalid", `the lease is a set: ${lease.resources.join(", ")}`, "pass the lock that guards the write");
    }
    for (const key of keys) {
      if (key.startsWith(marks)) throw new LeasedError("invalid", `the key ${key} is reserved for a mark`, "use another key");
      if (!this.options.anySlot && hashed(key) !== tag(name)) {
        throw new LeasedError("invalid", `the key ${key} is not in the slot of ${name}`, "name it with redisKey");
      }
    }
    const rest = [String(keys.length + 1), marks + redisKey(name), ...keys, String(lease.token), String(this.options.maxJump ?? MAX_JUMP), ...args];
    let reply: unknown;
    try {
      reply = await this.send(["EVALSHA", createHash("sha1").update(source).digest("hex"), ...rest]);
    } catch (error) {
      if (!(error as Error).message.startsWith("NOSCRIPT")) throw unknown(error);
      reply = await this.send(["EVAL", source, ...rest]).catch((e: unknown) => Promise.reject(unknown(e)));
    }
    const [part, first, message] = (Array.isArray(reply) ? reply : [reply]) as unknown[];
    const kind = text(part);
    if (kind === "1" || kind === "done") return first;
    if (kind === "stale" || kind === "jump") throw refusal(name, lease.token, parseToken(text(first)), kind === "jump");
    if (kind === "failed" && text(first) === "0") throw new LeasedError("invalid", `nothing was written: ${text(message)}`);
    throw new Uncertain("uncertain", `a command failed, and others may have written: ${text(message ?? first ?? part)}`);
  }

  private send(words: string[]): Promise<unknown> {
    const [command = "", ...rest] = words;
    const { client } = this;
    if (!("call" in client)) return client.sendCommand(words);
    return new Promise((resolve, reject) => {
      const calls = pending.get(client);
      const call: PendingCall = { sent: client.status === "ready", reject };
      calls?.add(call);
      const settled = (): unknown => calls?.delete(call);
      client.call(command, ...rest).then(resolve, reject).finally(settled);
    });
  }
}

/** Returns the error for a command that failed: an answer of the server as it is, otherwise the outcome is unknown. */
function unknown(error: unknown): unknown {
  if (/^[A-Z]{3,} /.test((error as Error).message)) return error;
  return new Uncertain("uncertain", `the connection failed, and the write may or may not have happened: ${String(error)}`, "read the data again under the same token");
}
