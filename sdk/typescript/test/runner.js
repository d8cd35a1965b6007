// Runs the scenarios of sdk/conformance: a line of JSON for each call, and one for each result.
import { createInterface } from "node:readline";

import { Held, LeaseLost, LockManager, Unavailable, Uncertain } from "../dist/index.js";

const clients = new Map();
const leases = new Map();

function client({ client: name, endpoints, secret }) {
  const key = JSON.stringify([name, endpoints, secret]);
  if (!clients.has(key)) clients.set(key, new LockManager(endpoints, secret ? { secret } : {}));
  return clients.get(key);
}

async function acquire(call) {
  try {
    const lease = await client(call).acquire(call.lock, { wait: call.waitMillis, ttl: call.ttlMillis });
    leases.set(call.lease, lease);
    return { result: "granted", token: lease.token, mode: lease.lockMode };
  } catch (error) {
    if (error instanceof Held) return { result: "held" };
    if (error instanceof LeaseLost) return { result: "lost" };
    if (error instanceof Uncertain || error instanceof Unavailable) return { result: `${error.name}: ${error.message}` };
    return { result: "refused" };
  }
}

async function run(call) {
  if (call.do === "acquire") return acquire(call);
  const lease = leases.get(call.lease);
  if (call.do === "release") {
    await lease.release();
    return { result: "released" };
  }
  if (call.do === "lost" && !lease.signal.aborted) await new Promise((resolve) => lease.signal.addEventListener("abort", resolve, { once: true }));
  return { result: lease.signal.aborted ? "lost" : "held" };
}

for await (const line of createInterface({ input: process.stdin })) {
  const call = JSON.parse(line);
  run(call).catch((error) => ({ result: String(error) })).then((result) => console.log(JSON.stringify({ id: call.id, ...result })));
}
