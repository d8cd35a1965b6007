// The client when the service hangs, refuses and forgets.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { getEventListeners, once } from "node:events";
import { createServer } from "node:http";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";

import { LeaseLost, LeasedError, LockManager, Unavailable, Uncertain } from "../dist/index.js";
import { Transport } from "../dist/transport.js";
import { eventually, startMember } from "./service.js";

let service;
let others;

before(async () => {
  service = await startMember();
  await service.call("set-policy", { policy: { prefix: "fast/", mode: "efficiency", ttl: "10s" } });
  await eventually("the migration ends", async () => (await service.call("list-policies", {})).migrations.length === 0);
  await eventually("efficiency mode is ready", async () => (await service.call("get-fleet", {})).ready);
  others = new LockManager(service.url);
});

after(async () => {
  await others.close();
  await service.stop();
});

/** A client that runs a hook before each call. The hook may wait, throw, or answer instead of the service. */
const intercepted = (hook, options = {}) =>
  new LockManager(service.url, {
    ...options,
    fetch: async (url, init) => (await hook(String(url).split("/").at(-1), JSON.parse(init.body), init.signal)) ?? fetch(url, init),
  });

const hangs = (signal) => new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
const refusal = (code, status) => new Response(JSON.stringify({ code, message: code }), { status });

for (const prefix of ["strong/", "fast/"]) {
  test(`${prefix}: a renewal waits for no other call`, async () => {
    let on = false;
    const renewed = [];
    const locks = intercepted((method, body, signal) => {
      if (method === "renew") renewed.push(body.resource ?? "session");
      return on && (method === "release" || body.resource === "fast/hangs") ? hangs(signal) : undefined;
    }, { ttl: 9000 });
    const hanging = await locks.acquire("fast/hangs", { wait: 60_000 });
    const kept = await locks.acquire(`${prefix}in-time`, { wait: 60_000 });
    const released = await Promise.all([1, 2, 3].map((i) => locks.acquire(`strong/hanging/${i}`)));
    on = true;
    const releases = Promise.allSettled(released.map((lease) => lease.release()));
    await eventually("the deadline", () => hanging.signal.aborted);
    await eventually("renewals", () => renewed.filter((name) => name === (prefix === "fast/" ? kept.name : "session")).length > 3);
    assert.ok(!kept.signal.aborted);
    on = false;
    await releases;
    await locks.close();
  });
}

test("a refused renewal ends its lease at the deadline, and no other lease", async () => {
  const locks = intercepted((method, body) => (method === "renew" && body.resource === "fast/forbidden" ? refusal("forbidden", 403) : undefined), { ttl: 9000 });
  const allowed = await locks.acquire("fast/allowed", { wait: 60_000 });
  const lease = await locks.acquire("fast/forbidden", { wait: 60_000 });
  await eventually("the deadline", () => lease.signal.aborted);
  assert.ok(!allowed.signal.aborted);
  await locks.close();
});

test("a holder learns of a loss long before the next renewal", async () => {
  const locks = new LockManager(service.url, { ttl: 3_600_000 });
  for (const name of ["s/pushed", "s/pushed-again"]) {
    const work = async (lease) => {
      await service.call("break", { resource: name, token: lease.token });
      await eventually("the loss", () => lease.signal.aborted);
    };
    await assert.rejects(locks.request(name, { wait: 60_000 }, work), LeaseLost);
  }
  const ended = await locks.acquire("s/ended");
  await service.call("close-session", { sessionId: ended.kept.name.sessionId });
  await eventually("the loss", () => ended.signal.aborted);
  await locks.close();
});

for (const prefix of ["strong/", "fast/"]) {
  test(`${prefix}: an acquire whose answer is lost finds its grant`, async () => {
    let lost;
    const locks = new LockManager(service.url, {
      fetch: async (url, init) => {
        const response = await fetch(url, init);
        if (!url.endsWith("/acquire") || lost || !response.ok) return response;
        lost = await response.json();
        throw new TypeError("the answer is lost");
      },
    });
    await locks.request(`${prefix}repeat`, { wait: 120_000 }, (lease) => assert.equal(lease.token, lost.token));
    await locks.close();
  });
}

test("calls of a session follow the leader", async () => {
  const hosts = [];
  const elsewhere = service.url.replace("127.0.0.1", "localhost"); // the service does not know this address
  const locks = new LockManager([elsewhere, service.url], { fetch: (url, init) => (hosts.push(new URL(url).hostname), fetch(url, init)) });
  await locks.request("s/follow", () => undefined);
  assert.deepEqual(hosts, ["localhost", "127.0.0.1", "127.0.0.1"]);
  await locks.close();
});

test("an acquire whose session has ended opens another one", async () => {
  let ended;
  const locks = intercepted(async (method, body) => {
    if (method === "acquire" && body.resource === "s/second" && !ended) await service.call("close-session", { sessionId: (ended = body.sessionId) });
  }, { ttl: 9000 });
  const first = await locks.acquire("s/first");
  const second = await locks.acquire("s/second", { wait: 60_000 });
  assert.ok(second.token > first.token);
  await eventually("the loss", () => first.signal.aborted);
  await locks.close();
});

test("the signal of another lease ends a wait, and the waiter leaves the queue", async () => {
  const locks = new LockManager(service.url, { ttl: 60_000 });
  const outer = await locks.acquire("s/outer");
  const kept = await locks.acquire("s/kept"); // the session stays open
  const held = await others.acquire("s/inner");
  const waiter = assert.rejects(locks.acquire("s/inner", { signal: outer.signal }), LeaseLost);
  await eventually("the waiter", async () => (await others.query("s/inner")).waiters?.length === 1);
  await outer.release();
  await waiter;
  await held.release();
  await others.request("s/inner", { wait: 20_000 }, () => undefined);
  await kept.release();
  await locks.close();
});

test("close ends the waiters and the leases of a client", async () => {
  const held = await others.acquire("s/closing");
  const locks = new LockManager(service.url);
  const mine = await locks.acquire("s/mine");
  const waiter = assert.rejects(locks.acquire("s/closing"), /closed/);
  await eventually("the waiter", async () => (await others.query("s/closing")).waiters?.length === 1);
  await locks.close();
  await waiter;
  assert.ok(mine.signal.reason instanceof LeaseLost);
  await assert.rejects(locks.acquire("s/closing"), /closed/);
  await held.release();
  await others.request("s/mine", { wait: 60_000 }, () => undefined);
});

test("a session without leases and waiters is closed after its TTL, unless it has the default TTL", async () => {
  const closed = [];
  const locks = intercepted((method, body) => void (method === "close-session" && closed.push(body.sessionId)));
  const sessionOf = (lease) => lease.kept.name.sessionId;
  await locks.request("s/default", () => undefined);
  const held = await locks.acquire("s/idle", { ttl: 5000 });
  const waiter = locks.acquire("s/idle", { ttl: 6000, wait: 60_000 });
  const done = await locks.request("s/done", { ttl: 2500 }, sessionOf);
  await eventually("the end of the idle session", () => closed.length > 0);
  await new Promise((resolve) => setTimeout(resolve, 7000));
  assert.deepEqual(closed, [done]);
  await held.release();
  await (await waiter).release();
  await eventually("the end of the others", () => closed.length === 3);
  assert.equal(locks.kept.size, 1);
  await locks.close();
});

test("an acquire that does not wait ends soon, whatever fails", async (t) => {
  const signal = AbortSignal.timeout(30_000);
  const nobody = new LockManager("http://127.0.0.1:1", { ttl: 60_000, fetch: () => Promise.reject(new TypeError("failed", { cause: { code: "ECONNREFUSED" } })) });
  await assert.rejects(nobody.acquire("a", { wait: 0, signal }), Unavailable);
  const silent = createServer(() => undefined).listen(0, "127.0.0.1"); // it never answers
  t.after(() => silent.close().closeAllConnections());
  await once(silent, "listening");
  const unheard = new LockManager(`http://127.0.0.1:${silent.address().port}`, { ttl: 2000 });
  await assert.rejects(unheard.acquire("a", { wait: 0, signal }), Unavailable);
  const slow = intercepted(() => new Promise((resolve) => setTimeout(resolve, 600)), { ttl: 1000 }); // a session ends before its first grant
  await assert.rejects(slow.request("s/slow", { ifAvailable: true, signal }, () => assert.fail("called")), LeasedError);
  await slow.close();
});

test("an acquire whose answer was lost is repeated before its time is over", async () => {
  let asked = 0;
  const locks = intercepted((method, body, signal) => (method === "acquire" && body.resource === "s/lost" ? (asked++, hangs(signal)) : undefined));
  await locks.request("s/open", () => undefined); // the time is for the acquire alone
  await assert.rejects(locks.acquire("s/lost", { wait: 0 }), Uncertain);
  assert.ok(asked > 1);
  await locks.close();
});

test("a call that may have had its effect stays uncertain", async () => {
  let calls = 0;
  const locks = intercepted((method) => (method === "release" ? refusal(calls++ ? "unavailable" : "uncertain", 503) : undefined), { ttl: 1000 });
  const lease = await locks.acquire("s/unclear");
  await assert.rejects(lease.release(), Uncertain);
  assert.ok(calls > 1);
  await locks.close();
});

test("a request that is not granted costs one call", async () => {
  const calls = [];
  const locks = intercepted((method) => void calls.push(method));
  await others.request("s/held", async () => {
    await locks.request("s/held", { ifAvailable: true }, (lease) => assert.equal(lease, null));
    await locks.request("s/held", { ifAvailable: true }, (lease) => assert.equal(lease, null));
  });
  assert.deepEqual(calls.filter((method) => method !== "renew"), ["open-session", "acquire", "acquire"]);
  await locks.close();
});

test("an error of the callback is not hidden by the loss of the lease", async () => {
  const error = new RangeError("mine");
  const locks = new LockManager(service.url, { ttl: 9000 });
  const work = async (lease) => {
    await service.call("break", { resource: lease.name, token: lease.token });
    await eventually("the loss", () => lease.signal.aborted);
    throw error;
  };
  await assert.rejects(locks.request("s/error", work), (e) => e === error);
  await locks.close();
});

test("the signal notices a pause of the process before any timer", async () => {
  const locks = new LockManager(service.url, { ttl: 2000 });
  const lease = await locks.acquire("s/paused");
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 2500); // nothing else runs
  assert.ok(lease.signal.aborted);
  assert.equal(lease.remaining, 0);
  await locks.close();
});

for (const prefix of ["strong/", "fast/"]) {
  test(`${prefix}: the time that a request takes is no part of the lease`, async () => {
    const locks = intercepted(() => new Promise((resolve) => setTimeout(resolve, 1000)), { ttl: 30_000 });
    const lease = await locks.acquire(`${prefix}before`, { wait: 60_000 });
    assert.ok(lease.remaining < 29_000);
    const granted = lease.kept.renewed;
    lease.kept.doubt = true;
    locks.schedule();
    await eventually("a renewal", () => lease.kept.renewed !== granted);
    assert.ok(lease.remaining < 29_000);
    await locks.close();
  });
}

for (const prefix of ["strong/", "fast/"]) {
  test(`${prefix}: a process runs while it holds a lease, and no longer`, async () => {
    const start = (name, then) => {
      const code = `import { LockManager } from "./dist/index.js"; const lease = await new LockManager("${service.url}").acquire("${name}", { wait: 60_000 }); ${then}`;
      const child = spawn(process.execPath, ["--input-type=module", "-e", code], { cwd: fileURLToPath(new URL("..", import.meta.url)), stdio: "inherit" });
      return { child, ended: once(child, "exit") };
    };
    const { child, ended } = start(`${prefix}running`, "");
    const held = async () => (await others.query(`${prefix}running`)).holders?.length === 1;
    await eventually("the lease", held);
    await new Promise((resolve) => setTimeout(resolve, 3000));
    assert.equal(child.exitCode, null);
    child.kill("SIGKILL");
    await ended;
    assert.deepEqual(await start(`${prefix}ends`, "await lease.release()").ended, [0, null]);
  });
}

test("a wall clock that runs ahead ends a lease early", async (t) => {
  const locks = new LockManager(service.url, { ttl: 30_000 });
  const lease = await locks.acquire("s/ahead");
  const now = Date.now;
  t.mock.method(Date, "now", () => now() + 60_000); // as after a suspension of the machine
  assert.ok(lease.signal.aborted);
  t.mock.restoreAll();
  await locks.close();
});

const failures = [[503, '{"code": "not-leader", "message": "no leader"}'], [500, '{"code": "internal"}'], [500, ""], [502, "<html>"]];
for (const [status, text] of failures) {
  test(`a member that fails is left: ${status} ${text}`, async () => {
    const failing = createServer((_, res) => res.writeHead(status).end(text));
    const port = await new Promise((resolve) => failing.listen(0, "127.0.0.1", () => resolve(failing.address().port)));
    const locks = new LockManager([`http://127.0.0.1:${port}`, service.url]);
    await locks.request("s/left", { wait: 60_000 }, () => undefined);
    await locks.close();
    failing.close();
    failing.closeAllConnections();
  });
}

test("a renewal leaves an address that is no member", async () => {
  const answer = async (url) => (url.includes("other") ? new Response("<html>", { status: 404 }) : new Response("{}"));
  const transport = new Transport(["http://other:1", "http://member:1"], {}, answer);
  await assert.rejects(transport.call("renew", { sessionId: "s" }, 1000), /not JSON/);
  assert.deepEqual(await transport.call("renew", { sessionId: "s" }, 1000), {});
});

test("a call goes on to a member that knows the secret already", async () => {
  const answers = { other: async () => refusal("unauthenticated", 401), member: async () => new Response("{}"), nobody: () => Promise.reject(new TypeError("failed", { cause: { code: "ECONNREFUSED" } })) };
  const call = (...names) => new Transport(names.map((name, i) => `http://${name}:${i}`), {}, (url) => answers[new URL(url).hostname]()).call("renew", { sessionId: "s" }, 1000);
  assert.deepEqual(await call("other", "nobody", "other", "member"), {});
  await assert.rejects(call("other", "other"), { code: "unauthenticated" });
  await assert.rejects(call("other", "nobody"), { code: "unauthenticated" });
});

test("a client does not follow to a leader that it cannot reach, until some time has passed", async () => {
  const called = [];
  const answer = async (url, { signal }) => {
    called.push(new URL(url).hostname);
    return url.includes("silent") ? hangs(signal) : new Response("{}", { headers: { "Leased-Leader": "silent:1" } });
  };
  const transport = new Transport(["http://silent:1", "http://follower:1"], {}, answer);
  for (let round = 0; round < 2; round++) {
    await assert.rejects(transport.call("renew", { sessionId: "s" }, 50), Uncertain);
    for (let i = 0; i < 3; i++) await transport.call("renew", { sessionId: "s" }, 50);
    transport.failed.set("http://silent:1", { elapsed: () => 30_000 });
    await transport.call("renew", { sessionId: "s" }, 50);
  }
  const round = ["silent", "follower", "follower", "follower", "follower"];
  assert.deepEqual(called, [...round, ...round]);
});

test("a client follows to a leader at which a caller waits for a lock", async () => {
  const called = [];
  const answer = async (url, { signal, body }) => {
    called.push(new URL(url).hostname);
    return JSON.parse(body).wait ? hangs(signal) : new Response("{}", { headers: { "Leased-Leader": "leader:1" } });
  };
  const transport = new Transport(["http://leader:1", "http://follower:1"], {}, answer);
  await assert.rejects(transport.call("acquire", { sessionId: "s", wait: "60000ms" }, 50), Uncertain);
  for (let i = 0; i < 2; i++) await transport.call("renew", { sessionId: "s" }, 1000);
  assert.deepEqual(called, ["leader", "follower", "leader"]);
});

test("an address that is no member is refused at once", async () => {
  const other = createServer((_, res) => res.writeHead(404).end("<html>"));
  const port = await new Promise((resolve) => other.listen(0, "127.0.0.1", () => resolve(other.address().port)));
  await assert.rejects(new LockManager(`http://127.0.0.1:${port}`).acquire("a"), (error) => error instanceof LeasedError && error.message.includes("port"));
  other.close();
  other.closeAllConnections();
});

test("an address may lack its scheme, its port and nothing else", async () => {
  const called = [];
  const answer = async (url) => (called.push(url), new Response('{"lock": {}}'));
  const given = ["a:1", "a", "http://t/", "https://a:443", "https://a/prefix", "http://[::1]"];
  for (const endpoint of given) await new LockManager(endpoint, { fetch: answer }).query("x");
  const urls = ["http://a:1", "http://a:7420", "http://t:7420", "https://a:443", "https://a:7420/prefix", "http://[::1]:7420"];
  assert.deepEqual(called, urls.map((url) => `${url}/v1/inspect`));
  for (const endpoint of ["", "ftp://a", "http://", "http://a:port", "http://user:s3cret@a"]) {
    assert.throws(() => new LockManager(endpoint), (error) => error.code === "invalid" && !error.message.includes("s3cret"), endpoint);
  }
});

test("an address that can never work is refused at once", async () => {
  const signal = AbortSignal.timeout(30_000);
  for (const endpoint of [service.url.replace("http", "https"), "http://127.0.0.1:6000"]) {
    await assert.rejects(new LockManager(endpoint).acquire("a", { signal }), (error) => error.code === "invalid" && error.message.includes(endpoint));
  }
});

for (const names of [["fast/mixed", "strong/mixed"], ["a-strong/mixed", "fast/mixed"]]) {
  test(`a set of both modes is refused: ${names[0]}`, async () => {
    let acquires = 0;
    const locks = intercepted((method) => {
      if (method === "acquire" && ++acquires > 4) return refusal("forbidden", 403); // it does not end otherwise
      return undefined;
    });
    await assert.rejects(locks.acquire(names, { ifAvailable: true }), /one mode/);
    await locks.close();
  });
}

test("a grant that is released because it was not renewed after its wait is not used again", async () => {
  const held = await others.acquire("fast/unused", { wait: 60_000 });
  let lost = false;
  let take;
  const taken = new Promise((resolve) => (take = resolve));
  let released = false;
  const locks = intercepted(async (method, body) => {
    if (method === "renew" && body.resource && !lost) {
      lost = true;
      throw new TypeError("the answer is lost");
    }
    if (method !== "release") return undefined;
    await Promise.race([taken, new Promise((resolve) => setTimeout(resolve, 3000))]); // it is later than the next acquire
    await service.call("release", body);
    released = true;
    return undefined;
  }, { ttl: 9000 });
  setTimeout(() => void held.release(), 8000); // after the time for a renewal, which is a third of the TTL
  const lease = await locks.acquire("fast/unused");
  take();
  await eventually("the release", () => released);
  assert.deepEqual((await others.query("fast/unused")).holders.map(({ token }) => token), [lease.token]);
  await lease.release();
  await locks.close();
});

test("an attempt that a member answers with an error is not repeated", async () => {
  const attempts = [];
  const unanswered = () => { throw new TypeError("the answer is lost"); };
  const answers = [() => refusal("unavailable", 503), () => refusal("uncertain", 503), unanswered, () => refusal("unavailable", 503)];
  const locks = intercepted((method, body) => (method === "acquire" && body.attempt ? answers[attempts.push(body.attempt) - 1]?.() : undefined));
  const lease = await locks.acquire("fast/answered", { wait: 60_000 });
  const [first, second, third, fourth, fifth] = attempts;
  assert.ok(first !== second && second !== third, "a member that has answered withdraws the attempt, perhaps later");
  assert.ok(third === fourth && fourth === fifth, "a member may have granted it");
  await lease.release();
  await locks.close();
});

test("close releases everything, also what could not be released before, and if calls fail", async () => {
  const names = ["s/ends", "fast/ends", "fast/abandoned"];
  const failed = [];
  const locks = intercepted((method) => {
    if (!on || !["release", "close-session"].includes(method) || failed.filter((name) => name === method).length > 3) return undefined;
    failed.push(method);
    return refusal("limit", 503);
  }, { ttl: 30_000 });
  let on = false;
  const leases = await Promise.all(names.map((name) => locks.acquire(name, { wait: 20_000 })));
  on = true;
  await assert.rejects(leases[2].release(), (error) => error.code === "limit");
  await locks.close();
  for (const name of names) assert.deepEqual((await others.query(name)).holders, [], name);
});

test("close ends soon while the service is away, and the process waits for it", async () => {
  const code = `import { LockManager } from "./dist/index.js";
    let away = false;
    const locks = new LockManager("${service.url}", { ttl: 30_000, fetch: (...args) => away ? Promise.reject(new TypeError("away")) : fetch(...args) });
    const lease = await locks.acquire("fast/soon", { wait: 20_000 });
    away = true;
    await locks.close();
    process.exit(7);`;
  const began = performance.now();
  const child = spawn(process.execPath, ["--input-type=module", "-e", code], { cwd: fileURLToPath(new URL("..", import.meta.url)), stdio: "inherit" });
  assert.deepEqual(await once(child, "exit"), [7, null]);
  assert.ok(performance.now() - began > 4000 && performance.now() - began < 25_000);
});

for (const prefix of ["strong/", "fast/"]) {
  test(`${prefix}: a release that the service does not serve ends soon, and goes on in the background`, async () => {
    let away = false;
    const locks = intercepted((method) => (away && method === "release" ? refusal("unavailable", 503) : undefined), { ttl: 30_000 });
    const lease = await locks.acquire(`${prefix}away`, { wait: 20_000 });
    away = true;
    const began = performance.now();
    await assert.rejects(lease.release(), Unavailable);
    assert.ok(performance.now() - began < 20_000);
    away = false;
    await eventually("the release", async () => (await others.query(`${prefix}away`)).holders.length === 0);
    assert.ok(performance.now() - began < 29_000);
    await locks.close();
  });
}

test("however long the TTL is, a member that does not answer is left soon", async () => {
  const limits = [];
  const locks = intercepted((method, _, signal) => (method === "release" && limits.length === 0 ? (limits.push(performance.now()), hangs(signal)) : undefined), { ttl: 3_600_000 });
  const lease = await locks.acquire("s/long");
  await lease.release();
  assert.ok(performance.now() - limits[0] < 60_000);
  await locks.close();
});

test("a session that gets no new leases stays open while acquires wait in it", async (t) => {
  const called = [];
  const locks = intercepted((method) => void called.push(method));
  const held = await others.acquire("s/waiting");
  const ended = new AbortController();
  t.after(async () => (ended.abort(), await held.release(), await locks.close()));
  const waiter = assert.rejects(locks.acquire("s/waiting", { signal: ended.signal }), { name: "AbortError" });
  await eventually("the waiter", async () => (await others.query("s/waiting")).waiters?.length === 1);
  const [session] = locks.kept;
  locks.retire(session); // another acquire found that its lease is lost
  locks.step();
  assert.ok(locks.kept.has(session));
  ended.abort();
  await waiter;
  await eventually("the end of the session", () => called.includes("close-session"));
});

test("a session is not idle between two calls of an acquire", async () => {
  let kept;
  const locks = intercepted((method) => {
    if (method !== "acquire" || kept) return undefined;
    const [session] = locks.kept;
    setTimeout(() => { // the acquire pauses for 20 ms or more
      locks.retire(session);
      locks.step();
      kept.push(locks.kept.has(session));
    }, 5);
    kept = [];
    return refusal("unavailable", 503);
  });
  await (await locks.acquire("s/between")).release();
  assert.deepEqual(kept, [true]);
  await locks.close();
});

test("a lease is released also if the wall clock ran ahead for a while", async (t) => {
  const locks = new LockManager(service.url, { ttl: 60_000 });
  const lease = await locks.acquire("s/set-back");
  const now = Date.now;
  t.mock.method(Date, "now", () => now() + 600_000);
  assert.ok(lease.signal.aborted);
  t.mock.restoreAll();
  await lease.release();
  assert.deepEqual((await others.query("s/set-back")).holders, []);
  await locks.close();
});

test("close waits for a release that is under way, and for its repetition", async () => {
  let refused = false;
  const locks = intercepted(async (method) => {
    if (method !== "release") return undefined;
    await new Promise((resolve) => setTimeout(resolve, 200));
    if (refused) return undefined;
    refused = true;
    return refusal("limit", 503);
  }, { ttl: 30_000 });
  const lease = await locks.acquire("fast/leaving", { wait: 20_000 });
  const released = assert.rejects(lease.release(), (error) => error.code === "limit");
  await locks.close();
  assert.deepEqual((await others.query("fast/leaving")).holders, []);
  await released;
});

for (const lost of [false, true]) {
  test(`an aborted acquire in efficiency mode leaves no grant${lost ? ", not even of a call whose answer was lost before" : ""}`, async () => {
    const ended = new AbortController();
    const locks = new LockManager(service.url, {
      ttl: 30_000,
      fetch: async (url, init) => {
        const response = await fetch(url, init);
        if (!url.endsWith("/acquire") || !response.ok || ended.signal.aborted) return response;
        if (!lost) ended.abort();
        else setTimeout(() => ended.abort()); // the acquire pauses for 20 ms or more
        throw new TypeError("the answer is lost");
      },
    });
    await assert.rejects(locks.acquire("fast/aborted", { wait: 60_000, signal: ended.signal }), { name: "AbortError" });
    await locks.close();
    assert.deepEqual((await others.query("fast/aborted")).holders, []);
  });
}

const givingUp = { "has waited long enough": () => undefined, "ends with its client": (locks) => setTimeout(() => void locks.close()) };
for (const [how, end] of Object.entries(givingUp)) {
  test(`an acquire in efficiency mode that ${how} leaves no grant of a call whose answer was lost`, async () => {
    let over = false;
    const locks = new LockManager(service.url, {
      ttl: 30_000,
      fetch: async (url, init) => {
        const response = await fetch(url, init);
        if (over || !url.endsWith("/acquire") || !response.ok) return response;
        end(locks); // the acquire pauses for 20 ms or more
        throw new TypeError("the answer is lost");
      },
    });
    const name = `fast/given-up/${how.length}`;
    await assert.rejects(locks.acquire(name, { wait: 0 }), (error) => error instanceof Uncertain || /closed/.test(error.message));
    over = true;
    await locks.close();
    assert.deepEqual((await others.query(name)).holders, []);
  });
}

test("a session is replaced before its nonces are used up", async () => {
  const locks = new LockManager(service.url);
  await locks.request("s/nonces", () => undefined);
  const [session] = locks.kept;
  session.nonce = 2 ** 32 - 1;
  await locks.request("s/nonces", (lease) => assert.notEqual(lease.kept, session));
  await eventually("the end of the session", () => !locks.kept.has(session));
  await locks.close();
});

test("a signal keeps nothing of the calls that it has outlived", async () => {
  const { signal } = new AbortController();
  const left = () => Object.getOwnPropertySymbols(signal).map((symbol) => signal[symbol]?.size ?? 0);
  const before = left();
  const transport = new Transport(["http://member:1"], {}, async () => new Response("{}"));
  await transport.call("acquire", {}, 1000, signal);
  assert.deepEqual([getEventListeners(signal, "abort"), left().filter((size) => size > 0)], [[], before.filter((size) => size > 0)]);
});

test("a client that does not know the mode of a lock needs no leader for efficiency mode", async () => {
  let calls = [];
  let led = false;
  const locks = intercepted(async (method, body, signal) => {
    if (["open-session", "acquire"].includes(method)) calls.push(body.mode ?? method);
    if (method !== "open-session" || led) return undefined;
    await Promise.race([hangs(signal), new Promise((resolve) => setTimeout(resolve, 2500))]); // the member waits for a leader
    led = true;
    return refusal("not-leader", 503);
  });
  const locksAndCalls = [
    ["fast/leaderless", { ttl: 2000 }, ["open-session", "efficiency"]],
    ["fast/leaderless", {}, ["efficiency"]],
    ["strong/leaderless", { ttl: 20_000 }, ["open-session", "efficiency", "correctness"]],
    ["strong/readers", { ttl: 30_000, mode: "shared" }, ["open-session", "correctness"]], // there are none in efficiency mode
    ["strong/permits", { ttl: 40_000, permits: 2 }, ["open-session", "correctness"]],
  ];
  for (const [name, options, expected] of locksAndCalls) {
    [calls, led] = [[], false];
    await (await locks.acquire(name, { wait: 20_000, ...options })).release();
    assert.deepEqual([...new Set(calls)], expected, name);
  }
  await locks.close();
});

test("in efficiency mode, a renewal does not undo a change of the metadata", async () => {
  const locks = new LockManager(service.url, { ttl: 30_000 });
  const lease = await locks.acquire("fast/described", { wait: 60_000, metadata: { done: "0%" } });
  await lease.setMetadata({ done: "40%" });
  await service.call("renew", { resource: lease.name, token: lease.token, metadata: { done: "0%" } }); // as one that was under way
  const { renewed } = lease.kept;
  lease.kept.doubt = true;
  locks.schedule();
  await eventually("a renewal", () => lease.kept.renewed !== renewed);
  assert.deepEqual((await others.query(lease.name)).holders.map(({ metadata }) => metadata), [{ done: "40%" }]);
  await lease.release();
  await locks.close();
});
