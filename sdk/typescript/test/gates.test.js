// Gates in Redis, PostgreSQL and over HTTP, shared with writers in Go.
import assert from "node:assert/strict";
import { execFileSync, spawn, spawnSync } from "node:child_process";
import { mkdtempSync } from "node:fs";
import { createServer } from "node:http";
import { connect, createServer as createTCPServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";

import { Cluster, Redis } from "ioredis";
import pg from "pg";
import { RESP_TYPES, createClient, createCluster } from "redis";

import { LeasedError, StaleToken, Uncertain } from "../dist/index.js";
import { RedisGate, fence, parseToken, redisKey } from "../dist/fences.js";
import { httpGate } from "../dist/http.js";
import { eventually, freePort, startPostgres } from "./service.js";

let port;
let server;
let writer = process.env.GATE_WRITER;

const lease = (name, token) => ({ token, resources: [name], slot: 0, gateResource: name });

/** Writes with the gate of the Go packages, and returns whether the token was admitted. */
async function theirs(kind, place, resource, token) {
  const child = spawn(writer, [kind, place, resource, String(token)], { stdio: ["ignore", "ignore", "inherit"] });
  const code = await new Promise((resolve) => child.once("exit", resolve));
  assert.ok(code === 0 || code === 3, `exit code ${code}`);
  return code === 0;
}

before(async () => {
  if (!writer) {
    writer = join(mkdtempSync(join(tmpdir(), "leased-bin-")), "gatewriter");
    execFileSync("go", ["build", "-o", writer, "./sdk/conformance/gatewriter"], { cwd: fileURLToPath(new URL("../../..", import.meta.url)) });
  }
  port = await freePort();
  const folder = mkdtempSync(join(tmpdir(), "leased-redis-"));
  server = spawn("redis-server", ["--port", String(port), "--bind", "127.0.0.1", "--save", "", "--dir", folder], { stdio: "ignore" });
  await eventually("Redis is ready", () => spawnSync("redis-cli", ["-p", String(port), "ping"]).stdout.includes("PONG"));
});

after(async () => {
  const ended = new Promise((resolve) => server.once("exit", resolve));
  server.kill();
  await ended;
});

/** A writer in JavaScript and one in Go refuse the older tokens of each other. */
async function guardEachOther(ours, go) {
  await ours(1);
  await ours(1); // another write of the holder
  assert.ok(await go(2));
  await assert.rejects(ours(1), StaleToken);
  await ours(3);
  assert.ok(!(await go(2)));
  assert.ok(await go(3));
}

const clients = {
  ioredis: async () => {
    const client = new Redis(port, { autoResendUnfulfilledCommands: false });
    return { client, end: () => client.quit() };
  },
  "node-redis": async () => {
    const client = createClient({ url: `redis://127.0.0.1:${port}` });
    await client.connect();
    return { client, end: () => client.disconnect() };
  },
};

for (const [library, connect] of Object.entries(clients)) {
  test(`Redis with ${library}`, async () => {
    const { client, end } = await connect();
    try {
      const gate = new RedisGate(client);
      const name = `orders/{%}/${library}`;
      const key = redisKey(name, ":text");
      await guardEachOther((token) => gate.write(lease(name, token), [["SET", key, token]]), (token) => theirs("redis", `127.0.0.1:${port}`, name, token));
      await gate.enter(lease(name, 4));
      assert.equal(Number(await gate.run(lease(name, 4), "return redis.call('INCRBY', KEYS[1], ARGV[1])", [key], [2])), 5);
      await assert.rejects(gate.write(lease(name, 2 ** 41), [["SET", key, 1]]), /jumps too far/);
      for (const bad of [["GET", key], ["DEL", key, "x"], ["SET", "elsewhere", 1], ["SET", `{}${key}`, 1], ["SET", `leased:mark:${redisKey(name)}`, 9]]) {
        await assert.rejects(gate.write(lease(name, 4), [bad]), LeasedError);
      }
      await assert.rejects(gate.write(lease(name, 4), [["SET", key, 8], ["RPUSH", redisKey(name), ...Array(9000).fill(1)]]), LeasedError);
      assert.equal(await gate.run(lease(name, 4), "return redis.call('GET', KEYS[1])", [key]), "5", "nothing was written");
      await assert.rejects(gate.write(lease(name, 5), [["RPUSH", key, 1]]), /nothing was written/);
      await gate.enter(lease(name, 4));
      await assert.rejects(gate.write(lease(name, 4), [["SET", key, 1], ["RPUSH", key, 1]]), Uncertain);
    } finally {
      await end();
    }
  });
}

test("a client that sends writes again, or never, is refused", async () => {
  const once = { lazyConnect: true, autoResendUnfulfilledCommands: false };
  const cluster = new Cluster([{ host: "127.0.0.1", port }], once);
  const refused = [[new Redis(port, { lazyConnect: true }), /send a write again/], [new Redis(port, { ...once, enableAutoPipelining: true }), /never send/], [cluster, /cluster/]];
  for (const [client, reason] of refused) {
    assert.throws(() => new RedisGate(client), reason);
    client.disconnect();
  }
  assert.throws(() => new RedisGate(createCluster({ rootNodes: [{ url: `redis://127.0.0.1:${port}` }] })), /cluster/);
});

test("a client that prefixes keys is refused: other writers would not see its marks", async () => {
  const client = new Redis(port, { lazyConnect: true, autoResendUnfulfilledCommands: false, keyPrefix: "app:" });
  assert.throws(() => new RedisGate(client), (error) => error.code === "invalid" && /redisKey/.test(error.hint));
  client.disconnect();
});

test("a reply of Buffers is read as text, and an unknown reply is no success", async () => {
  const client = createClient({ url: `redis://127.0.0.1:${port}`, commandOptions: { typeMapping: { [RESP_TYPES.BLOB_STRING]: Buffer } } });
  await client.connect();
  try {
    const gate = new RedisGate(client);
    const key = redisKey("buffers", ":text");
    await gate.write(lease("buffers", 2), [["SET", key, "new"]]);
    await assert.rejects(gate.write(lease("buffers", 1), [["SET", key, "old"]]), (error) => error instanceof StaleToken && error.details.mark === 2);
    await assert.rejects(gate.write(lease("buffers", 2), [["RPUSH", key, 1]]), /nothing was written/);
    assert.deepEqual(await gate.run(lease("buffers", 2), "return redis.call('GET', KEYS[1])", [key]), Buffer.from("new"));
  } finally {
    client.destroy();
  }
  for (const reply of ["QUEUED", null, [], ["unknown"]]) {
    await assert.rejects(new RedisGate({ sendCommand: async () => reply }).enter(lease("buffers", 2)), Uncertain);
  }
});

test("ioredis: a write that was sent over a lost connection is uncertain, and one that waits for a connection is sent", { timeout: 30_000 }, async (t) => {
  const at = await freePort();
  const client = new Redis(at, { autoResendUnfulfilledCommands: false, enableReadyCheck: false, disableClientInfo: true, protocol: 2, retryStrategy: () => 20 });
  client.on("error", () => undefined);
  const gate = new RedisGate(client);
  const listeners = client.listenerCount("close");
  assert.equal(new RedisGate(client) && client.listenerCount("close"), listeners);
  const waits = gate.enter(lease("lost", 1));
  await new Promise((resolve) => client.once("close", resolve)); // no server listens yet
  let answer = ":1\r\n";
  const silent = createTCPServer((socket) => socket.on("data", () => (answer ? socket.write(answer) : socket.destroy()))).listen(at, "127.0.0.1");
  t.after(() => (client.disconnect(), silent.close()));
  await waits;
  answer = undefined;
  await assert.rejects(gate.enter(lease("lost", 1)), Uncertain);
});

test("PostgreSQL", async () => {
  const database = await startPostgres();
  const db = new pg.Client({ connectionString: database.url });
  await db.connect();
  try {
    const ours = async (token) => {
      await db.query("BEGIN");
      try {
        await fence({ ...lease("shared", token), resources: ["shared", "shared/b"] }, db);
        await db.query("COMMIT");
      } catch (error) {
        await db.query("ROLLBACK");
        throw error;
      }
    };
    for (const name of ["shared", "shared/b"]) {
      await ours(name === "shared" ? 1 : 5);
      assert.ok(await theirs("postgres", database.url, name, name === "shared" ? 2 : 6));
      await assert.rejects(ours(name === "shared" ? 1 : 5), StaleToken);
    }
    await assert.rejects(fence(lease("shared", 9), db), (error) => error instanceof LeasedError && /BEGIN/.test(error.hint));
    await assert.rejects(fence(lease("shared", 9), db, "other"), /not other/);
    await ours(7); // 9 was not admitted
    const pool = new pg.Pool({ connectionString: database.url });
    await assert.rejects(fence(lease("shared", 9), pool), /pool/);
    await pool.end();
    await db.query("SET search_path TO pg_catalog"); // without the functions
    await assert.rejects(ours(9), (error) => error instanceof LeasedError && /gate ddl/.test(error.hint));
  } finally {
    await db.end();
    await database.stop();
  }
});

test("HTTP", async () => {
  let running = 0;
  let most = 0;
  const gate = httpGate((req) => new URL(req.url, "http://localhost").pathname);
  const web = createServer((req, res) => gate(req, res, async () => {
    most = Math.max(most, ++running);
    await new Promise((resolve) => setTimeout(resolve, 10));
    running--;
    res.end("written");
  }));
  const { port: at } = await new Promise((resolve) => web.listen(0, "127.0.0.1", () => resolve(web.address())));
  const url = `http://127.0.0.1:${at}/orders`;
  const call = (method, token) => fetch(url, { method, headers: token === undefined ? {} : { "Fencing-Token": token } });
  try {
    assert.equal((await call("POST")).status, 200, "not fenced yet");
    assert.ok(await theirs("http", url, "orders", 2), "the client of the Go gate");
    assert.ok(!(await theirs("http", url, "orders", 1)), "it reads the problem");
    assert.equal((await (await call("POST", "1")).json()).type, "urn:leased:problem:stale-token");
    assert.equal((await (await call("POST")).json()).type, "urn:leased:problem:no-token");
    assert.equal((await call("POST", "01")).status, 400);
    assert.equal((await call("GET")).status, 200);
    assert.equal((await call("GET", "3")).status, 200, "the holder enters");
    assert.equal((await (await call("POST", "2")).json()).mark, 3);
    most = 0;
    const codes = await Promise.all([3, 3, 3, 3].map(async (token) => (await call("PUT", String(token))).status));
    assert.deepEqual(codes, [200, 200, 200, 200]);
    assert.equal(most, 1, "writes to one resource run one at a time");
  } finally {
    web.close();
    web.closeAllConnections();
  }
});

test("HTTP: no request ends the server or passes without a name", async (t) => {
  const printed = t.mock.method(console, "error", () => undefined);
  const gate = httpGate((req) => decodeURIComponent(req.url.slice(1).split("?")[0]));
  const web = createServer((req, res) => gate(req, res, () => res.end("written")));
  const { port: at } = await new Promise((resolve) => web.listen(0, "127.0.0.1", () => resolve(web.address())));
  /** Sends a request line as it is, and returns the status. */
  const status = async (line, token) => {
    const socket = connect(at, "127.0.0.1");
    socket.end(`${line} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n${token ? `Fencing-Token: ${token}\r\n` : ""}\r\n`);
    let answer = "";
    for await (const data of socket) answer += data;
    return Number(answer.split(" ")[1]);
  };
  try {
    assert.equal(await status("GET //"), 200);
    assert.equal(await status("PUT /%"), 500, "the name cannot be decoded");
    assert.equal(printed.mock.callCount(), 1);
    assert.equal(await status("PUT /"), 400, "an empty name");
    assert.equal(await status(`PUT /${"a".repeat(513)}`), 400);
    assert.equal(await status(`PUT /${"a".repeat(512)}`), 200);
    assert.equal(await status("PUT /a", 2), 200);
    assert.equal(await status("GET /a?b?c&_method=PUT", 1), 412);
    assert.equal(await status("GET /a?b?c&_method=PUT"), 412, "a write without a token");
  } finally {
    web.close();
    web.closeAllConnections();
  }
});

test("HTTP: the gate does not answer for the handler", async () => {
  const gate = httpGate((req) => req.url);
  const fail = (req) => {
    const error = new LeasedError("invalid", "of the handler");
    if (req.url === "/now") throw error;
    return Promise.reject(error);
  };
  const web = createServer((req, res) => gate(req, res, () => fail(req)).catch((error) => res.writeHead(500).end(error.message)));
  const { port: at } = await new Promise((resolve) => web.listen(0, "127.0.0.1", () => resolve(web.address())));
  try {
    for (const [method, path] of [["GET", "now"], ["PUT", "now"], ["GET", "later"], ["PUT", "later"]]) {
      const response = await fetch(`http://127.0.0.1:${at}/${path}`, { method });
      assert.deepEqual([response.status, await response.text()], [500, "of the handler"]);
    }
  } finally {
    web.close();
    web.closeAllConnections();
  }
});

test("HTTP: the turn of a handler does not end with its client", async () => {
  const events = [];
  const gone = new AbortController();
  let requests = 0;
  let finish;
  const finished = new Promise((resolve) => (finish = resolve));
  const gate = httpGate((req) => (requests++, req.url));
  const web = createServer((req, res) => gate(req, res, async () => {
    const token = req.headers["fencing-token"];
    events.push(`${token} begins`);
    if (token === "1") {
      res.once("close", () => events.push("1 is gone"));
      gone.abort();
      await finished;
    }
    events.push(`${token} ends`);
    res.end();
  }));
  const { port: at } = await new Promise((resolve) => web.listen(0, "127.0.0.1", () => resolve(web.address())));
  const put = (token, signal) => fetch(`http://127.0.0.1:${at}/orders`, { method: "PUT", headers: { "Fencing-Token": token }, signal });
  try {
    await assert.rejects(put("1", gone.signal), { name: "AbortError" });
    await eventually("the end of the connection", () => events.includes("1 is gone"));
    const next = put("2");
    await eventually("the next request", () => requests === 2);
    finish();
    assert.equal((await next).status, 200);
    assert.deepEqual(events, ["1 begins", "1 is gone", "1 ends", "2 begins", "2 ends"]);
  } finally {
    web.close();
    web.closeAllConnections();
  }
});

test("other forms of a token are refused", () => {
  for (const text of ["", "01", "+1", " 1", "1 ", "1e3", "9007199254740992", "-1", "1".repeat(30)]) assert.throws(() => parseToken(text), LeasedError);
});
