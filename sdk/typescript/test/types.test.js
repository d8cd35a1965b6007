// What the compiler says to callers, with the strictest options.
import assert from "node:assert/strict";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

import ts from "typescript";

const file = fileURLToPath(new URL("caller.ts", import.meta.url));

/** Returns the errors of a program that uses the package. */
function errors(code) {
  const options = { strict: true, exactOptionalPropertyTypes: true, noEmit: true, target: ts.ScriptTarget.ES2022, module: ts.ModuleKind.NodeNext, types: ["node"], skipLibCheck: true };
  const host = ts.createCompilerHost(options);
  const { fileExists, getSourceFile } = host;
  host.fileExists = (name) => name === file || fileExists(name);
  host.getSourceFile = (name, ...rest) => (name === file ? ts.createSourceFile(name, code, ...rest) : getSourceFile(name, ...rest));
  return ts.getPreEmitDiagnostics(ts.createProgram([file], options, host)).map(({ messageText }) => ts.flattenDiagnosticMessageText(messageText, "\n"));
}

const locks = 'import { type Lease, LockManager, type RequestOptions } from "leased"; const locks = new LockManager();';

test("the lease of a request is never null without ifAvailable", () => {
  const code = `${locks}
    await locks.request("a", (lease) => lease.token);
    await locks.request("a", {}, (lease) => lease.token);
    await locks.request("a", { wait: 1, ifAvailable: false }, (lease) => lease.token);
    await locks.request("a", { ifAvailable: true }, (lease) => lease?.token);`;
  assert.deepEqual(errors(code), []);
});

test("the lease of a request may be null with options that may have ifAvailable", () => {
  for (const options of ["{ ifAvailable: true }", "{} as RequestOptions"]) {
    assert.match(errors(`${locks} await locks.request("a", ${options}, (lease) => lease.token);`).join(), /possibly 'null'/);
  }
});

test("a gate accepts the clients of ioredis and node-redis", () => {
  const code = `
    import { Redis } from "ioredis";
    import { createClient } from "redis";
    import { RedisGate } from "leased/fences";
    new RedisGate(new Redis(6379, { autoResendUnfulfilledCommands: false }));
    new RedisGate(createClient());`;
  assert.deepEqual(errors(code), []);
});
