/**
 * Locks with fencing tokens, in the shape of the Web Locks API.
 *
 * A lease alone does not protect data: its holder may be paused and wake up after the lease has passed on. Pass
 * `lease.token` with every write to a fence, which refuses older tokens.
 */
import { randomBytes } from "node:crypto";
import { hostname } from "node:os";

import { Instant, formatDuration, parseDuration, pause } from "./clock.js";
import { Held, LeaseLost, LeasedError, ModeMismatch, Unavailable, Uncertain } from "./errors.js";
import { type Answer, Transport, address } from "./transport.js";

export { Held, LeaseLost, LeasedError, ModeMismatch, StaleToken, Unavailable, Uncertain } from "./errors.js";

/** Options of a client. */
export interface ClientOptions {
  /** The secret of a user. */
  secret?: string;
  /** The name of this program, for people who inspect a lock. */
  holder?: string;
  /** The TTL of leases in milliseconds. Default: 10,000. */
  ttl?: number;
  /** For TLS with client certificates, a fetch with its own dispatcher. */
  fetch?: typeof globalThis.fetch;
}

/** Options of a request. */
export interface RequestOptions {
  /** "shared" for readers. Default: "exclusive". */
  mode?: "exclusive" | "shared";
  /** Do not wait: the callback gets null if others hold the lock. */
  ifAvailable?: boolean;
  /** Ends the wait. */
  signal?: AbortSignal;
  /** The longest wait in milliseconds, then Held. Default: no limit. */
  wait?: number;
  /** The TTL of the lease in milliseconds. */
  ttl?: number;
  /** Take one of this many permits of the lock. */
  permits?: number;
  /** For people who inspect the lock. */
  metadata?: Readonly<Record<string, string>>;
}

const answerTime = 4000; // milliseconds until another member is asked; a member waits 3000 for a leader
const waitTime = 10_000; // milliseconds for which one member is asked to wait
const retryTimeout = 5000; // milliseconds for which a read, a release or a close is repeated, and an acquire beyond its wait
const forever = 3_600_000; // the longest wait of one call
const drift = 0.01; // of the TTL: clocks may run at slightly different rates
const knownModes = 10_000; // locks whose mode is remembered
const lastNonce = 2 ** 31; // of a session: the service refuses those from 2^32
const notice = 1000; // the longest sleep while there are leases: no timer counts while a machine is suspended
const silence = 10_000; // milliseconds without a line until a stream counts as broken; the service sends one every two seconds

const backoff = (failures: number): number => Math.min(1000, 20 * 2 ** Math.min(failures, 6)) * (0.5 + Math.random() / 2);
const retryable = (error: unknown): boolean => error instanceof Unavailable || error instanceof Uncertain;

/** What one renewal extends: a session with its leases, or a lease in efficiency mode. */
class KeepAlive {
  readonly leases = new Set<Lease>();
  nonce = 0;
  attempts = 0; // acquires under way
  used = new Instant(); // when the timer last found a lease or a call
  busy = false; // a renewal is under way
  doubt = false; // a lease may be lost: the next renewal shows it
  watch: AbortController | undefined; // ends the stream that reports losses
  changed: Answer = {}; // the metadata that renewals of a lease in efficiency mode carry

  /** `renewed` is when the TTL begins: before the request was sent. */
  constructor(
    readonly name: Answer,
    readonly ttl: number,
    public renewed: Instant,
  ) {}

  get isSession(): boolean {
    return "sessionId" in this.name;
  }

  /** The milliseconds until it ends without a renewal. */
  left(): number {
    return this.ttl * (1 - drift) - this.renewed.elapsed();
  }

  /** The milliseconds until it must be renewed. */
  due(): number {
    return this.doubt ? 0 : this.ttl / 3 - this.renewed.elapsed();
  }

  /** How long one member may take to answer before another one is asked. */
  limit(): number {
    return Math.max(1000, Math.min(this.ttl / 3, answerTime));
  }
}

/** The place of an acquire in a session, which is in use meanwhile, also between two calls. */
class Place {
  private session: KeepAlive | undefined;

  /** Takes a place in a session, instead of the place before, and returns its nonce. */
  enter(session: KeepAlive): number {
    this.leave();
    this.session = session;
    session.attempts++;
    return ++session.nonce;
  }

  leave(): void {
    if (this.session) this.session.attempts--;
    this.session = undefined;
  }
}

/** A lock that the caller holds, with its fencing token. */
export class Lease implements AsyncDisposable {
  private readonly ending = new AbortController();

  /** @internal */
  constructor(
    private readonly locks: LockManager,
    /** All locks under this token, in order. */
    readonly resources: readonly string[],
    /** The fencing token. Pass it with every write. */
    readonly token: number,
    /** "exclusive", or "shared" for readers. */
    readonly mode: "exclusive" | "shared",
    /** "correctness" or "efficiency". */
    readonly lockMode: string,
    /** The slot of a permit, else 0. */
    readonly slot: number,
    /** @internal */ readonly kept: KeepAlive,
    /** @internal */ readonly body: Answer,
  ) {}

  /** The lock, or the first lock of a set. */
  get name(): string {
    return this.resources[0] ?? "";
  }

  /** The name to give to a fence: the lock, or the slot of a permit. */
  get gateResource(): string {
    return this.slot > 0 ? `${this.name}#${this.slot}` : this.name;
  }

  /** Aborted when the lease is lost, or its deadline has passed, or it is released. */
  get signal(): AbortSignal {
    if (this.kept.left() <= 0) this.end(expired(this)); // after a pause of the process no timer may have run
    return this.ending.signal;
  }

  /** The milliseconds until the lease ends without a renewal. Use a fence instead of a check. */
  get remaining(): number {
    return this.signal.aborted ? 0 : Math.max(0, this.kept.left());
  }

  /** Replaces the metadata that others see when they query the lock, such as the progress of a job. */
  async setMetadata(metadata: Readonly<Record<string, string>>): Promise<void> {
    await this.locks.describe(this, metadata);
  }

  /** Releases the lock. Releasing twice has no effect. If the service does not answer, the release goes on in the background. */
  async release(): Promise<void> {
    await this.locks.release(this);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.release();
  }

  /** @internal */
  end(cause: LeasedError): void {
    if (!this.ending.signal.aborted) this.ending.abort(cause);
  }
}

const expired = (lease: Lease): LeaseLost => new LeaseLost("expired", `the lease of ${lease.name} was not renewed in time`);

/** A client of a leased service. One timer keeps all its leases alive. */
export class LockManager implements AsyncDisposable {
  private readonly transport: Transport;
  private readonly holder: string;
  private readonly ttl: number;
  private readonly sessions = new Map<number, KeepAlive>(); // for new leases, by the TTL that was asked for
  private readonly opening = new Map<number, Promise<KeepAlive>>();
  private readonly kept = new Set<KeepAlive>();
  private readonly modes = new Map<string, string>();
  private timer: ReturnType<typeof setTimeout> | undefined;
  private readonly endings = new Set<Promise<void>>(); // calls that end something
  private closed: Instant | undefined;

  constructor(endpoints: string | readonly string[] = "http://127.0.0.1:7420", options: ClientOptions = {}) {
    const urls = typeof endpoints === "string" ? [endpoints] : endpoints;
    const members = urls.map(address);
    const headers: Record<string, string> = options.secret === undefined ? {} : { Authorization: `Bearer ${checked(options.secret, members)}` };
    this.transport = new Transport(members, headers, options.fetch ?? globalThis.fetch);
    this.holder = options.holder ?? `${hostname()}:${process.pid}`;
    this.ttl = options.ttl ?? 10_000;
  }

  /** Holds a lock while the callback runs, and returns its result. If the lease was lost meanwhile, it throws LeaseLost. */
  request<T>(names: string | readonly string[], callback: (lease: Lease) => T | Promise<T>): Promise<T>;
  request<T>(names: string | readonly string[], options: RequestOptions & { ifAvailable?: false }, callback: (lease: Lease) => T | Promise<T>): Promise<T>;
  request<T>(names: string | readonly string[], options: RequestOptions, callback: (lease: Lease | null) => T | Promise<T>): Promise<T>;
  async request<T>(
    names: string | readonly string[],
    options: RequestOptions | ((lease: Lease) => T | Promise<T>),
    callback?: (lease: never) => T | Promise<T>,
  ): Promise<T> {
    const run = (callback ?? options) as (lease: Lease | null) => T | Promise<T>;
    if (typeof run !== "function") throw new TypeError("the last argument of request must be a function");
    const settings = callback ? (options as RequestOptions) : {};
    let lease: Lease;
    try {
      lease = await this.acquire(names, settings);
    } catch (error) {
      if (settings.ifAvailable && error instanceof Held) return run(null);
      throw error;
    }
    let result: T;
    try {
      result = await run(lease);
    } catch (error) {
      await lease.release().catch(() => undefined); // it is released in the background
      throw error;
    }
    const { signal } = lease;
    const lost = signal.aborted && (signal.reason as LeasedError).code !== "released";
    await lease.release().catch(() => undefined);
    if (lost) throw signal.reason; // the result was not guarded
    return result;
  }

  /** Takes a lock. Release the lease, or declare it with `await using`. */
  async acquire(names: string | readonly string[], options: RequestOptions = {}): Promise<Lease> {
    const place = new Place();
    try {
      return await this.take(names, options, place);
    } finally {
      place.leave();
    }
  }

  private async take(names: string | readonly string[], options: RequestOptions, place: Place): Promise<Lease> {
    const resources = typeof names === "string" ? [names] : [...new Set(names)].sort();
    const name = resources[0] ?? "";
    const { mode: kind = "exclusive" } = options;
    if (kind !== "exclusive" && kind !== "shared") throw new TypeError(`mode "${String(kind)}" must be "exclusive" or "shared"`);
    if ("steal" in options && options.steal) throw new LeasedError("unsupported", "a lock cannot be stolen", "leased break ends a lease");
    const ttl = options.ttl ?? this.ttl;
    const limit = options.ifAvailable ? 0 : options.wait;
    const began = new Instant();
    let attempt = randomBytes(16).toString("hex");
    let session: KeepAlive | undefined;
    let nonce = 0;
    let doubt = false; // the service may have the attempt
    let switched: unknown; // the lock of which the service has just named another mode
    let silent: Answer | undefined; // a call under this attempt that was not answered
    let failures = 0;
    let guess = "correctness";
    // A service that does not serve the caller gets a little longer than the wait.
    const rest = (): number => (limit === undefined ? forever : limit + Math.min(ttl, retryTimeout) - began.elapsed());
    for (;;) {
      let named: Answer | undefined; // the call under way, if it carries the name of the attempt
      try {
        this.checkOpen();
        options.signal?.throwIfAborted();
        const mode = this.modes.get(name) ?? guess;
        const body: Record<string, unknown> = { holder: this.holder, mode };
        let left = Math.min(forever, limit === undefined ? forever : Math.max(0, limit - began.elapsed()));
        if (resources.length === 1) body["resource"] = name;
        else body["resources"] = resources;
        if (kind === "shared") body["shared"] = true;
        if (options.permits) body["permits"] = options.permits;
        if (options.metadata) body["metadata"] = options.metadata;
        if (mode === "correctness") {
          const open = await unless(options.signal, this.session(ttl, rest()));
          if (open !== session) [session, nonce, doubt] = [open, place.enter(open), false];
          Object.assign(body, open.name, { nonce });
        } else {
          place.leave();
          [session, doubt] = [undefined, false];
          Object.assign(body, { ttl: formatDuration(ttl), attempt });
          left = Math.min(left, waitTime); // it has no place in a queue that a copy could take over
        }
        body["wait"] = formatDuration(left);
        const sent = new Instant();
        const time = Math.min(Math.min(waitTime, left) + answerTime, Math.max(1000, rest()));
        named = session ? undefined : body;
        const answer = await this.transport.call("acquire", body, time, options.signal);
        if (mode === "efficiency" && !this.modes.has(name)) this.learn(name, mode); // it was a guess
        // A grant that is not used is released: a copy would return it.
        [attempt, silent, named] = [randomBytes(16).toString("hex"), undefined, undefined];
        return await this.granted(answer, kind, sent, session, nonce);
      } catch (error) {
        if (options.signal?.aborted) { // its reason may be the LeaseLost of another lease
          if (session) this.unwant(session, nonce);
          const attempted = named ?? silent;
          if (attempted) void this.track(this.withdraw(attempted, ttl));
          throw options.signal.reason;
        }
        if (error instanceof ModeMismatch) {
          const { mode: has = "", resource: lock = name } = error.details as { mode?: string; resource?: string };
          if (switched !== undefined && lock !== switched) {
            throw new LeasedError("invalid", `a set must have one mode, but one lock of ${resources.join(", ")} is in ${has} mode and another one is not`, "take the locks one after the other");
          }
          this.learn(name, has);
          session = undefined;
          if (switched === undefined) {
            switched = lock;
            continue;
          }
        }
        switched = undefined;
        const late = rest() < 0;
        const ended = error instanceof Held && (limit === undefined || began.elapsed() < limit);
        if (ended || (error instanceof ModeMismatch && !late)) session = undefined; // the members do not agree about the mode yet
        else if (error instanceof LeaseLost && !late) {
          this.retire(session); // the next renewal shows whether it is gone
          session = undefined;
        } else {
          doubt ||= error instanceof Uncertain || !(error instanceof LeasedError);
          const answered = error instanceof LeasedError && "code" in error.details;
          if (!answered && !(error instanceof Unavailable)) silent ??= named;
          // The member that answers an attempt in efficiency mode with an error withdraws it, perhaps later.
          if (answered && !silent) attempt = randomBytes(16).toString("hex");
          if (!retryable(error) || late) {
            if (session && doubt && !(error instanceof Held)) this.unwant(session, nonce);
            if (silent && !(error instanceof Held)) void this.track(this.withdraw(silent, ttl));
            throw error;
          }
          // In efficiency mode, a lock needs no leader, unlike a session. Readers and permits exist in correctness mode only.
          if (answered && !session && kind === "exclusive" && !options.permits) guess = "efficiency";
        }
        failures++;
      }
      await pause(backoff(failures), options.signal).catch(() => undefined);
    }
  }

  /** Returns the holders and waiters of a lock, as docs/API.md describes them. */
  async query(name: string): Promise<Answer> {
    return (await this.repeat("inspect", { resource: name }, retryTimeout, answerTime))["lock"] as Answer;
  }

  /** Releases everything. It takes some seconds at most. */
  async close(): Promise<void> {
    this.closed ??= new Instant();
    clearTimeout(this.timer);
    const kept = [...this.kept];
    this.kept.clear();
    this.sessions.clear();
    for (const k of kept) {
      k.watch?.abort();
      for (const lease of k.leases) lease.end(new LeaseLost("lost", "the client is closed"));
    }
    for (const k of kept) this.discard(k);
    const running = setInterval(() => undefined, notice); // the pauses between calls do not keep the process running
    while (this.endings.size > 0) await Promise.all(this.endings); // what fails may go on as another one
    clearInterval(running);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  /** @internal */
  async describe(lease: Lease, metadata: Readonly<Record<string, string>>): Promise<void> {
    const body = { resource: lease.name, token: lease.token, metadata: { ...metadata } };
    await this.repeat("renew", body, lease.remaining, lease.kept.limit()); // the deadline of the holder stays
    // A renewal that is under way may restore the metadata from before.
    if (!lease.kept.isSession) lease.kept.changed = { metadata: body.metadata };
  }

  /** @internal */
  async release(lease: Lease): Promise<void> {
    // The signal does not decide: it may have been aborted by a wall clock that was set back since.
    if (!this.kept.has(lease.kept) || !lease.kept.leases.has(lease)) return;
    const left = lease.remaining;
    lease.end(new LeaseLost("released", "the lease is released"));
    this.leave(lease);
    try {
      await this.track(this.repeat("release", lease.body, Math.min(left, retryTimeout), lease.kept.limit()));
    } catch (error) {
      if (error instanceof LeaseLost) return;
      this.discard(lease.kept, "release", lease.body); // the session would keep it
      throw error;
    }
  }

  private checkOpen(): void {
    if (this.closed) throw new LeasedError("invalid", "the client is closed");
  }

  private learn(name: string, mode: string): void {
    if (this.modes.size >= knownModes) this.modes.clear();
    this.modes.set(name, mode);
  }

  /** Makes a call that can be repeated, until it is served or some milliseconds have passed. */
  private async repeat(method: string, body: Answer, milliseconds: number, limit: number): Promise<Answer> {
    const began = new Instant();
    let uncertain: unknown; // an earlier call may have had its effect
    for (let failures = 1; ; failures++) {
      try {
        return await this.transport.call(method, body, limit);
      } catch (error) {
        if (!retryable(error)) throw error;
        if (error instanceof Uncertain) uncertain = error;
        if (began.elapsed() >= milliseconds) throw uncertain ?? error;
      }
      await pause(backoff(failures));
    }
  }

  /** Returns the open session for leases of this TTL. */
  private async session(ttl: number, limit: number): Promise<KeepAlive> {
    const known = this.sessions.get(ttl);
    if (known && known.left() > 0 && known.nonce < lastNonce) return known;
    const opening = this.opening.get(ttl) ?? this.open(ttl, limit).finally(() => this.opening.delete(ttl));
    this.opening.set(ttl, opening);
    return opening;
  }

  private async open(ttl: number, limit: number): Promise<KeepAlive> {
    const sent = new Instant();
    const body = { ttl: formatDuration(ttl), sessionId: randomBytes(16).toString("hex") };
    const call = this.transport.call("open-session", body, Math.max(1000, Math.min(limit, answerTime)));
    const answer = await call.catch((error: unknown) => {
      // A session without leases has no effect.
      throw error instanceof Uncertain ? new Unavailable("unavailable", error.message, error.hint) : error;
    });
    const session = new KeepAlive({ sessionId: String(answer["sessionId"]) }, parseDuration(String(answer["ttl"])), sent);
    if (this.closed) this.discard(session);
    this.checkOpen();
    this.sessions.set(ttl, session);
    this.kept.add(session);
    this.schedule();
    return session;
  }

  /** Stops using a session for new leases. */
  private retire(session: KeepAlive | undefined): void {
    for (const [ttl, known] of this.sessions) if (known === session) this.sessions.delete(ttl);
  }

  private async granted(answer: Answer, mode: "exclusive" | "shared", sent: Instant, session: KeepAlive | undefined, nonce: number): Promise<Lease> {
    const resources = (answer["resources"] as unknown[]).map(String);
    const token = Number(answer["token"]);
    const body = session ? { ...session.name, nonce } : { resource: resources[0], token };
    const kept = session ?? new KeepAlive(body, parseDuration(String(answer["ttl"])), sent);
    const lease = new Lease(this, resources, token, mode, String(answer["mode"]), Number(answer["slot"] ?? 0), kept, body);
    try {
      if (!session && kept.due() <= 0) { // after a wait: it was granted at an unknown time
        const again = new Instant();
        await this.transport.call("renew", body, kept.limit());
        kept.renewed = again;
      }
      if (kept.left() <= 0 || this.closed || (session && !this.kept.has(session))) {
        throw new LeaseLost("expired", `the lease of ${lease.name} ended before its grant arrived`, "if the service is slow, use a longer TTL");
      }
    } catch (error) {
      this.discard(kept, "release", body);
      throw error;
    }
    kept.leases.add(lease);
    this.kept.add(kept);
    if (session) this.hold();
    else this.schedule();
    return lease;
  }

  private unwant(session: KeepAlive, nonce: number): void {
    if (this.kept.has(session)) this.discard(session, "release", { ...session.name, nonce }); // otherwise it has ended
  }

  /** Releases what an acquire in efficiency mode that has given up may have been granted. Only a copy of its call finds the grant. */
  private async withdraw(body: Answer, ttl: number): Promise<void> {
    const began = new Instant();
    for (let failures = 1; began.elapsed() < (this.closed ? Math.min(ttl, retryTimeout) : ttl); failures++) {
      try {
        const answer = await this.transport.call("acquire", { ...body, wait: "0ms" }, answerTime);
        const name = { resource: (answer["resources"] as unknown[])[0], token: answer["token"] };
        this.discard(new KeepAlive(name, ttl, began));
        return;
      } catch (error) {
        if (!retryable(error)) return; // such as Held: there is no grant
      }
      await pause(backoff(failures), undefined, true);
    }
  }

  private leave(lease: Lease): void {
    lease.kept.leases.delete(lease);
    if (!lease.kept.isSession) this.kept.delete(lease.kept);
    this.hold();
  }

  /** Keeps the process running while there are leases. */
  private hold(): void {
    for (const k of this.kept) if (k.leases.size > 0) return void this.timer?.ref();
    this.timer?.unref();
  }

  /** Starts the timer for the next step. */
  private schedule(): void {
    clearTimeout(this.timer);
    if (this.closed || this.kept.size === 0) return;
    let next = notice;
    for (const k of this.kept) next = Math.min(next, k.left(), k.busy ? notice : k.due());
    this.timer = setTimeout(() => this.step(), Math.max(0, next));
    this.hold();
  }

  /** Renews leases and ends expired ones. It waits for no call, so no deadline does. */
  private step(): void {
    for (const [ttl, session] of this.sessions) {
      if (session.leases.size + session.attempts > 0) session.used = new Instant();
      else if (ttl !== this.ttl && session.used.elapsed() > session.ttl) this.sessions.delete(ttl);
    }
    const current = new Set(this.sessions.values());
    for (const k of this.kept) {
      if (k.leases.size === 0) k.watch?.abort(); // an open stream would keep the process running
      else if (k.isSession && !k.watch) void this.watch(k, (k.watch = new AbortController()));
      const idle = k.leases.size + k.attempts === 0 && !current.has(k);
      if (k.left() <= 0 || idle) {
        this.kept.delete(k);
        k.watch?.abort();
        this.discard(k); // a late renewal may have kept it
        for (const lease of k.leases) lease.end(expired(lease));
      } else if (!k.busy && k.due() <= 0) {
        void this.renew(k);
      }
    }
    this.schedule();
  }

  /** Ends a KeepAlive, or something of it, in the background. */
  private discard(kept: KeepAlive, method = kept.isSession ? "close-session" : "release", body = kept.name): void {
    void this.track(this.repeatEnding(kept, method, body));
  }

  /** Lets close wait for a call. */
  private track<T>(call: Promise<T>): Promise<T> {
    const ended: Promise<void> = call.then(() => undefined, () => undefined).finally(() => this.endings.delete(ended));
    this.endings.add(ended);
    return call;
  }

  /** Repeats a call that ends something, until it is served or what it ends has expired, but after a close not for long. */
  private async repeatEnding(kept: KeepAlive, method: string, body: Answer): Promise<void> {
    const began = new Instant();
    for (let failures = 1; ; failures++) {
      try {
        await this.transport.call(method, body, kept.limit());
        return;
      } catch (error) {
        const closed = this.closed && Math.min(this.closed.elapsed(), began.elapsed());
        const over = closed === undefined ? !this.kept.has(kept) && began.elapsed() > kept.ttl : closed > Math.min(kept.ttl, retryTimeout);
        if (error instanceof LeaseLost || over) return;
      }
      await pause(backoff(failures), undefined, true);
    }
  }

  /** Renews a session or a lease repeatedly, until a member answers or it has ended. */
  private async renew(kept: KeepAlive): Promise<void> {
    kept.busy = true;
    try {
      for (let failures = 1; this.kept.has(kept) && kept.left() > 0; failures++) {
        const leases = [...kept.leases];
        const sent = new Instant();
        kept.doubt = false;
        try {
          const answer = await this.transport.call("renew", { ...kept.name, ...kept.changed }, kept.limit());
          this.extend(kept, leases, sent, answer);
          return;
        } catch (error) {
          if (error instanceof LeaseLost) return this.lost(kept, error);
        }
        await pause(backoff(failures), undefined, true);
      }
    } finally {
      kept.busy = false;
      this.schedule();
    }
  }

  /** Watches a session for losses, each of which is confirmed by a renewal. Without a stream, renewals report losses later. */
  private async watch(kept: KeepAlive, { signal }: AbortController): Promise<void> {
    const doubt = (): void => {
      kept.doubt = true;
      this.schedule();
    };
    const told = (event: Answer): void => {
      const tokens = new Set((event["tokens"] as unknown[] | undefined ?? []).map(Number));
      const gone = event["type"] === "synced" && [...kept.leases].some((lease) => !tokens.has(lease.token));
      if (gone || event["type"] === "lost") doubt();
    };
    while (this.kept.has(kept) && !signal.aborted) {
      try {
        await this.transport.call("watch-session", kept.name, silence, signal, told);
      } catch (error) {
        if (error instanceof LeaseLost) doubt(); // other errors, such as another leader, say nothing
      }
      await pause(backoff(6), signal, true).catch(() => undefined);
    }
    kept.watch = undefined;
  }

  /** Extends the leases that a renewal names. The others were lost. */
  private extend(kept: KeepAlive, leases: readonly Lease[], sent: Instant, answer: Answer): void {
    const tokens = new Set((answer["tokens"] as unknown[] | undefined ?? []).map(Number));
    if (kept.left() > 0) kept.renewed = sent; // a lease that has expired for its holder stays expired
    for (const lease of leases) {
      if (tokens.has(lease.token)) continue;
      this.leave(lease);
      lease.end(new LeaseLost("not-held", `the service does not have the lease of ${lease.name} any more`));
    }
  }

  /** Ends everything that a lost session keeps. */
  private lost(kept: KeepAlive, cause: LeasedError): void {
    this.retire(kept);
    this.kept.delete(kept);
    kept.watch?.abort();
    for (const lease of kept.leases) lease.end(cause);
  }
}

/** Returns a secret that a header can carry, and that nobody else on the network can read. No error quotes the secret: fetch would. */
function checked(secret: string, members: readonly string[]): string {
  const text = secret.trim();
  if (!/^[ -~]*$/.test(text)) {
    throw new LeasedError("invalid", "the secret has a character that is not printable ASCII", "pass what 'leased user add' has printed");
  }
  for (const member of members) {
    const { protocol, hostname } = new URL(member);
    if (protocol === "https:" || /^(localhost|127(\.\d+){3}|\[::1\])$/.test(hostname)) continue;
    throw new LeasedError("invalid", `the secret is not sent without TLS to ${member}, which is not a loopback address`, "use a URL that begins with https://");
  }
  return text;
}

/** Waits for a promise, unless a signal ends the wait first. */
function unless<T>(signal: AbortSignal | undefined, promise: Promise<T>): Promise<T> {
  if (!signal) return promise;
  return new Promise((resolve, reject) => {
    const ended = (): void => reject(signal.reason as Error);
    signal.addEventListener("abort", ended, { once: true });
    promise.then(resolve, reject).finally(() => signal.removeEventListener("abort", ended));
  });
}
