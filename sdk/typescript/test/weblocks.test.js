// What the Web Locks specification (W3C, "Web Locks API") requires of request and query, as far as a lock service can have it. Not there: steal,
// names that are reserved, and the refusal of ifAvailable together with signal.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { LeasedError, LockManager } from "../dist/index.js";
import { eventually, startMember } from "./service.js";

let service;
let locks;
let others;

before(async () => {
  service = await startMember("--redis", "none");
  locks = new LockManager(service.url, { ttl: 30_000 });
  others = new LockManager(service.url, { ttl: 30_000 });
});

after(async () => {
  await locks.close();
  await others.close();
  await service.stop();
});

const isFree = (name) => others.request(name, { ifAvailable: true }, (lock) => lock !== null);
const waiters = (name, count) => eventually(`${count} waiters`, async () => ((await locks.query(name)).waiters ?? []).length === count);

/** Holds a lock until the returned function is called. */
async function hold(name, options = {}) {
  let release;
  const gate = new Promise((resolve) => (release = resolve));
  let granted;
  const held = new Promise((resolve) => (granted = resolve));
  const done = locks.request(name, options, (lock) => (granted(lock), gate));
  const lock = await held;
  return { lock, release: () => (release(), done) };
}

test("the promise has the result of the callback, which may be a value or a promise", async () => {
  assert.equal(await locks.request("a", () => 1), 1);
  assert.equal(await locks.request("a", async () => 2), 2);
});

test("the lock has its name and its mode", async () => {
  await locks.request("a", (lock) => assert.deepEqual([lock.name, lock.mode], ["a", "exclusive"]));
  await locks.request("a", { mode: "shared" }, (lock) => assert.equal(lock.mode, "shared"));
});

test("an exception of the callback rejects the promise and releases the lock", async () => {
  const error = new RangeError("mine");
  await assert.rejects(locks.request("b", () => { throw error; }), (e) => e === error);
  await assert.rejects(locks.request("b", async () => { throw error; }), (e) => e === error);
  assert.ok(await isFree("b"));
});

test("the lock is held until the promise of the callback is settled", async () => {
  const { release } = await hold("c");
  assert.ok(!(await isFree("c")));
  assert.ok(await isFree("c/other"), "other names are independent");
  await release();
  assert.ok(await isFree("c"));
});

test("ifAvailable gives null if the lock is not free, and does not wait", async () => {
  const { release } = await hold("d");
  assert.equal(await others.request("d", { ifAvailable: true }, (lock) => lock), null);
  await release();
  assert.notEqual(await others.request("d", { ifAvailable: true }, (lock) => lock), null);
});

test("requests are granted in order", async () => {
  const { release } = await hold("e");
  const order = [];
  const all = [];
  for (const i of [1, 2, 3]) {
    all.push((i % 2 ? locks : others).request("e", () => order.push(i)));
    await waiters("e", i);
  }
  await release();
  await Promise.all(all);
  assert.deepEqual(order, [1, 2, 3]);
});

test("shared locks are held together, and a waiting exclusive request goes before later shared ones", async () => {
  const first = await hold("f", { mode: "shared" });
  await others.request("f", { mode: "shared" }, () => undefined);
  const order = [];
  const writer = others.request("f", () => order.push("writer"));
  await waiters("f", 1);
  const reader = others.request("f", { mode: "shared" }, () => order.push("reader"));
  await waiters("f", 2);
  await first.release();
  await Promise.all([writer, reader]);
  assert.deepEqual(order, ["writer", "reader"]);
});

test("an aborted signal rejects the request with its reason, and the callback does not run", async () => {
  const reason = new Error("mine");
  const never = () => assert.fail("called");
  await assert.rejects(locks.request("g", { signal: AbortSignal.abort(reason) }, never), (e) => e === reason);
  const { release } = await hold("g");
  const ends = new AbortController();
  const request = others.request("g", { signal: ends.signal }, never);
  await waiters("g", 1);
  const next = others.request("g", () => "next");
  await waiters("g", 2);
  ends.abort(reason);
  await assert.rejects(request, (e) => e === reason);
  await waiters("g", 1); // it has left the queue
  await release();
  assert.equal(await next, "next");
});

test("a signal that is aborted after the grant has no effect", async () => {
  const ends = new AbortController();
  const result = await locks.request("h", { signal: ends.signal }, async (lock) => {
    ends.abort();
    assert.ok(!(await isFree("h")));
    return lock.signal.aborted;
  });
  assert.equal(result, false);
});

test("query returns the holders and the waiters", async () => {
  const { lock, release } = await hold("i");
  const waiter = others.request("i", () => undefined);
  await waiters("i", 1);
  assert.deepEqual((await locks.query("i")).holders.map((h) => h.token), [lock.token]);
  await release();
  await waiter;
});

test("wrong arguments are refused", async () => {
  await assert.rejects(locks.request("j", {}), TypeError);
  await assert.rejects(locks.request("j"), TypeError);
  await assert.rejects(locks.request("j", { mode: "other" }, () => undefined), TypeError);
  await assert.rejects(locks.request("j", { steal: true }, () => undefined), (e) => e instanceof LeasedError && e.code === "unsupported");
});
