// The client against a real service.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { Held, LeaseLost, LeasedError, LockManager, Unavailable } from "../dist/index.js";
import { eventually, freePort, startMember } from "./service.js";

let service;
let locks;
let others;

before(async () => {
  service = await startMember();
  await service.call("set-policy", { policy: { prefix: "fast/", mode: "efficiency", ttl: "10s" } });
  await eventually("the migration ends", async () => (await service.call("list-policies", {})).migrations.length === 0);
  await eventually("efficiency mode is ready", async () => (await service.call("get-fleet", {})).ready);
  locks = new LockManager(service.url, { holder: "test" });
  others = new LockManager(service.url, { holder: "other" });
});

after(async () => {
  await locks.close();
  await others.close();
  await service.stop();
});

for (const prefix of ["strong/", "fast/"]) {
  test(`${prefix}: request, ifAvailable and tokens`, async () => {
    const name = `${prefix}a`;
    const first = await locks.request(name, async (lease) => {
      assert.equal(lease.lockMode, prefix === "strong/" ? "correctness" : "efficiency");
      assert.ok(lease.remaining > 0 && lease.remaining <= 10_000);
      assert.equal(await others.request(name, { ifAvailable: true }, (l) => l), null);
      await assert.rejects(others.acquire(name, { wait: 100 }), Held);
      assert.equal((await locks.query(name)).holders[0].holder, "test");
      await lease.setMetadata({ done: "40%" });
      assert.deepEqual((await others.query(name)).holders[0].metadata, { done: "40%" });
      return lease.token;
    });
    const second = await others.acquire(name);
    assert.ok(second.token > first);
    await second.release();
    await second.release(); // twice
    assert.ok(second.signal.aborted);
  });

  test(`${prefix}: a waiter is granted on release, and a signal ends a wait`, async () => {
    const name = `${prefix}wait`;
    const first = await locks.acquire(name);
    const ends = new AbortController();
    const ended = assert.rejects(others.acquire(name, { signal: ends.signal }), { name: "AbortError" });
    ends.abort();
    await ended;
    const waiter = others.acquire(name, { wait: 60_000 });
    await first.release();
    const second = await waiter;
    assert.ok(second.token > first.token);
    await second.release();
  });

  test(`${prefix}: a lease is renewed, and a broken one is lost`, async () => {
    const name = `${prefix}renewed`;
    await locks.request(name, async (lease) => {
      for (let least = lease.remaining; lease.remaining <= least; ) { // until a renewal
        least = lease.remaining;
        assert.ok(!lease.signal.aborted);
        assert.equal(await others.request(name, { ifAvailable: true }, (l) => l), null);
        await new Promise((resolve) => setTimeout(resolve, 100));
      }
    });
    await assert.rejects(
      locks.request(name, async (lease) => {
        await service.call("break", { resource: name, token: lease.token });
        await eventually("the loss", () => lease.signal.aborted);
      }),
      LeaseLost,
    );
  });
}

test("sets, shared leases and permits", async () => {
  await locks.request(["s/b", "s/a"], async (lease) => {
    assert.deepEqual(lease.resources, ["s/a", "s/b"]);
    assert.equal(await others.request("s/a", { ifAvailable: true }, (l) => l), null);
  });
  await locks.request("s/r", { mode: "shared" }, () => others.request("s/r", { mode: "shared" }, () => undefined));
  await locks.request("s/p", { permits: 2 }, async (one) => {
    await others.request("s/p", { permits: 2 }, (two) => {
      assert.deepEqual([one.slot, two.slot].sort(), [1, 2]);
      assert.equal(one.gateResource, `s/p#${one.slot}`);
    });
  });
});

test("errors say what to do", async () => {
  const nobody = `http://127.0.0.1:${await freePort()}`;
  await assert.rejects(new LockManager(nobody).query("a"), (error) => error instanceof Unavailable && error.message.includes(nobody));
  await assert.rejects(locks.acquire("fast/shared", { mode: "shared" }), (error) => error instanceof LeasedError && error.code === "unsupported" && error.hint !== "");
  const second = new LockManager([nobody, service.url]);
  await second.request("s/second", () => undefined);
  await second.close();
});

test("metadata that is not JSON ends the call", async () => {
  const circular = {};
  circular.self = circular;
  for (const value of [1n, circular]) {
    await assert.rejects(locks.acquire("s/metadata", { metadata: { value }, signal: AbortSignal.timeout(20_000) }), TypeError);
  }
});

test("a secret that no header can carry is refused and not quoted", () => {
  for (const secret of ["s3cret\nline", "s3cret\u00e9", "s3cret\u20ac"]) {
    assert.throws(() => new LockManager(service.url, { secret }), (error) => error.code === "invalid" && !error.message.includes("s3cret"));
  }
});

test("a secret is not sent without TLS to another machine", () => {
  for (const url of ["http://127.0.0.1:7420", "localhost:7420", "http://127.1.2.3", "http://[::1]:7420", "https://10.0.0.1"]) {
    new LockManager(url, { secret: "s3cret" });
  }
  for (const url of ["http://10.0.0.1:7420", "leased.example.com:7420", "http://localhost.example.com", "http://[fe80::1]"]) {
    new LockManager(url);
    assert.throws(() => new LockManager(["https://10.0.0.1", url], { secret: "s3cret" }), (error) => error.code === "invalid" && /without TLS/.test(error.message) && !error.message.includes("s3cret"));
  }
});

test("a secret is read without the line break of its file", async () => {
  let sent;
  const client = new LockManager(service.url, { secret: "s3cret\n", fetch: (url, init) => (sent = init.headers.Authorization, fetch(url, init)) });
  await client.query("a");
  assert.equal(sent, "Bearer s3cret");
});

test("a release is repeated, and a failed one is not kept alive", async () => {
  let answer;
  const client = new LockManager(service.url, {
    fetch: async (url, init) => (String(url).endsWith("/release") && answer?.()) || fetch(url, init),
  });
  const kept = await client.acquire("s/kept"); // so that the session is renewed
  const refuse = (status, code, times) => () => times-- > 0 && new Response(JSON.stringify({ code }), { status });
  for (const prefix of ["strong/", "fast/"]) {
    const lease = await client.acquire(`${prefix}release`);
    answer = refuse(503, "unavailable", 3);
    await lease.release();
    assert.ok(await others.request(`${prefix}release`, { ifAvailable: true }, (l) => l !== null));
  }
  const lease = await client.acquire("s/released");
  answer = refuse(400, "invalid", 1);
  await assert.rejects(lease.release(), LeasedError);
  await others.request("s/released", { wait: 60_000 }, () => undefined);
  await kept.release();
  await client.close();
});

test("a service that hangs ends the lease at its deadline", async () => {
  const member = await startMember("--redis", "none");
  const client = new LockManager(member.url, { ttl: 2000 });
  const lease = await client.acquire("a");
  member.child.kill("SIGSTOP");
  await eventually("the deadline", () => lease.signal.aborted);
  assert.equal(lease.remaining, 0);
  member.child.kill("SIGCONT");
  await eventually("the service answers", member.ready);
  const again = await client.acquire("a", { wait: 60_000 });
  assert.ok(again.token > lease.token);
  await client.close();
  await member.stop();
});
