// Runs the examples of docs/TYPESCRIPT.md and examples/typescript.
import { execFile, spawn, spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, readdirSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

import pg from "pg";
import ts from "typescript";

import { eventually, freePort, startMember, startPostgres } from "./service.js";

const root = fileURLToPath(new URL("../../..", import.meta.url));
const place = "http://127.0.0.1:7420";

/** Compiles a program and runs it in a process of its own, inside the package. */
async function run(code, url, env = {}) {
  const options = { target: ts.ScriptTarget.ES2022, module: ts.ModuleKind.ESNext };
  const { outputText } = ts.transpileModule(code.replaceAll(place, url), { compilerOptions: options });
  await promisify(execFile)(process.execPath, ["--input-type=module", "-e", outputText], { cwd: join(root, "sdk/typescript"), env: { ...process.env, ...env }, timeout: 300_000 });
}

test("docs/TYPESCRIPT.md and examples/typescript", async () => {
  const port = await freePort();
  const redis = spawn("redis-server", ["--port", String(port), "--bind", "127.0.0.1", "--save", "", "--dir", mkdtempSync(join(tmpdir(), "leased-redis-"))], { stdio: "ignore" });
  const database = await startPostgres();
  const service = await startMember("--redis", "none");
  try {
    await eventually("Redis is ready", () => spawnSync("redis-cli", ["-p", String(port), "ping"]).stdout.includes("PONG"));
    const db = new pg.Client({ connectionString: database.url });
    await db.connect();
    await db.query("CREATE TABLE accounts (id int PRIMARY KEY, balance int)");
    await db.end();
    const page = readFileSync(join(root, "docs/TYPESCRIPT.md"), "utf8");
    const blocks = [...page.matchAll(/```ts\n(.*?)```/gs)].map(([, code]) => code);
    await run(blocks.join("\n"), service.url, { DATABASE: database.url, REDIS_PORT: String(port) });
    const project = mkdtempSync(join(tmpdir(), "leased-project-"));
    mkdirSync(join(project, "node_modules"));
    symlinkSync(join(root, "sdk/typescript"), join(project, "node_modules/leased")); // as npm install of the folder
    for (const example of readdirSync(join(root, "examples/typescript"))) {
      writeFileSync(join(project, example), readFileSync(join(root, "examples/typescript", example), "utf8").replaceAll(place, service.url));
      await promisify(execFile)(process.execPath, [example], { cwd: project, timeout: 300_000 });
    }
  } finally {
    redis.kill();
    await service.stop();
    await database.stop();
  }
});
