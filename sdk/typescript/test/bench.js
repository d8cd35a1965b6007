// Compares pairs of acquire and release per second of 64 tasks, each with a lock of its own, with the lock of the package
// etcd3. The rounds take turns: node test/bench.js URL-OF-LEASED ADDRESS-OF-ETCD
import { Etcd3 } from "etcd3";

import { LockManager } from "../dist/index.js";

const tasks = 64;
const milliseconds = 3000;
const rounds = 6; // the first one is not counted
const locks = new LockManager(process.argv[2]);
const etcd = new Etcd3({ hosts: process.argv[3] });
const kinds = {
  "leased, correctness": (i) => locks.request(`node/${i}`, () => undefined),
  "leased, efficiency": (i) => locks.request(`fast/node/${i}`, () => undefined),
  "etcd3 lock, Node.js": (i) => etcd.lock(`node/${i}`).ttl(10).do(() => undefined),
};

async function pairs(one) {
  let count = 0;
  const end = performance.now() + milliseconds;
  await Promise.all(Array.from({ length: tasks }, async (_, i) => {
    for (; performance.now() < end; count++) await one(i);
  }));
  return count / (milliseconds / 1000);
}

const median = (figures) => figures.sort((a, b) => a - b)[figures.length >> 1];
const results = [];
for (let round = 0; round < rounds; round++) {
  const result = {};
  for (const [kind, one] of Object.entries(kinds)) result[kind] = await pairs(one);
  if (round > 0) results.push(result);
}
for (const kind of Object.keys(kinds)) {
  const rate = median(results.map((r) => r[kind])).toFixed(0);
  const ratio = median(results.map((r) => r["leased, correctness"] / r[kind])).toFixed(2);
  console.log(`${kind.padEnd(22)} ${rate.padStart(9)} ${ratio.padStart(24)}`);
}
await locks.close();
etcd.close();
