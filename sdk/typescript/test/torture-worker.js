// A worker of leased-torture: acquires locks, writes under them in PostgreSQL, and prints what it does as JSON. proptest/torture describes
// the events. Half of the time it does not check its lease before it writes, like a holder that is paused right after the check.
import { writeSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";

import pg from "pg";

import { fence } from "../dist/fences.js";
import { LockManager, StaleToken } from "../dist/index.js";

const kinds = { requested: 1, acquired: 2, ended: 4, sent: 5, acknowledged: 6, rejected: 7 };
const access = { write: 0, enter: 1, read: 2 };
const set = "INSERT INTO torture_register (resource, version) VALUES ($1, $2) ON CONFLICT (resource) DO UPDATE SET version = $2";
const note = "INSERT INTO torture_log (resource, op, token, seen, version) VALUES ($1, $2, $3, $4, $5)";

const spec = JSON.parse(process.env.LEASED_TORTURE_WORKER);
let op = spec.Number * 2 ** 44 + spec.Life * 2 ** 24;

const emit = (kind, event) => writeSync(1, `${JSON.stringify({ ...event, At: Number(process.hrtime.bigint()), Kind: kind, Who: spec.Name })}\n`);

/** Executes one operation in a transaction. undefined means that it was refused, or that its outcome is unknown. */
async function operation(event, run) {
  event = { ...event, Op: ++op };
  emit(kinds.sent, event);
  const db = new pg.Client({ connectionString: spec.DSN, connectionTimeoutMillis: 5000 });
  db.on("error", (error) => console.error(error.message));
  try {
    await db.connect();
    await db.query("BEGIN");
    const version = await run(db, event.Op);
    await db.query("COMMIT");
    emit(kinds.acknowledged, { ...event, Version: version });
    return version;
  } catch (error) {
    if (error instanceof StaleToken) emit(kinds.rejected, event);
    else console.error(error.message);
    return undefined;
  } finally {
    await db.end().catch(() => undefined);
  }
}

async function work(lease) {
  const careless = Math.random() < 0.5;
  const about = { Resource: lease.name, Token: lease.token };
  const entered = await operation({ ...about, Access: access.enter }, async (db) => (await fence(lease, db), 0));
  if (entered === undefined) return;
  let seen = await operation({ ...about, Access: access.read }, async (db) =>
    Number((await db.query("SELECT version FROM torture_register WHERE resource = $1", [lease.name])).rows[0]?.version ?? 0));
  for (let writes = 1 + Math.floor(Math.random() * 4); writes > 0 && seen !== undefined; writes--) {
    await sleep(Math.random() * 100);
    if (!careless && lease.signal.aborted) return;
    const base = seen;
    seen = await operation({ ...about, Access: access.write, Seen: base, Version: base + 1 }, async (db, number) => {
      await fence(lease, db);
      await db.query(set, [lease.name, base + 1]);
      await db.query(note, [lease.name, number, lease.token, base, base + 1]);
      return base + 1;
    });
  }
}

async function attempt(locks, name, number) {
  const event = { Resource: name, Attempt: `${spec.Name}.${spec.Life}/${number}` };
  emit(kinds.requested, event);
  let lease;
  try {
    lease = await locks.acquire(name, { wait: 2000, ttl: 1000 });
  } catch (error) {
    return console.error(error.message);
  }
  event.Token = lease.token;
  emit(kinds.acquired, { ...event, Note: lease.lockMode });
  let ended = false;
  const end = () => {
    if (!ended) emit(kinds.ended, event);
    ended = true;
  };
  lease.signal.addEventListener("abort", end, { once: true });
  await work(lease);
  end();
  await lease.release().catch((error) => console.error(error.message)); // it may be lost
}

let stopped = false;
process.stdin.resume().on("end", () => (stopped = true));
const locks = new LockManager(spec.Endpoints.map((endpoint) => `https://${endpoint}`), { holder: spec.Name });
for (let number = 1; !stopped; number++) {
  await sleep(Math.random() * 100);
  const generation = Math.random() < 1 / 40 ? "always" : Math.floor((Number(process.hrtime.bigint()) - spec.Began) / 20e9);
  const lock = spec.Classes[Math.floor(Math.random() * spec.Classes.length)];
  await attempt(locks, `${lock}/${generation}/${Math.floor(Math.random() * 3)}`, number);
}
await locks.close();
process.exit(0);
