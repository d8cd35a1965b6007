// A real service, and a real PostgreSQL server, for the tests.
import { execFileSync, spawn } from "node:child_process";
import { createSocket } from "node:dgram";
import { once } from "node:events";
import { chownSync, mkdtempSync, readdirSync, rmSync } from "node:fs";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("../../..", import.meta.url));

/** Returns a port of the loopback interface that nobody uses, and that no outgoing connection gets. */
export async function freePort() {
  for (;;) {
    const port = 15_000 + Math.floor(Math.random() * 5000);
    const reservation = createSocket("udp4").unref(); // until the process ends: other test processes skip the port
    try {
      reservation.bind({ port, address: "127.0.0.1", exclusive: true });
      await once(reservation, "listening");
      const socket = connect(port, "127.0.0.1");
      await once(socket, "connect");
      socket.destroy();
    } catch (error) {
      if (error.code === "ECONNREFUSED") return port;
    }
    reservation.close();
  }
}

export async function eventually(what, holds) {
  const end = Date.now() + 120_000;
  while (!(await holds())) {
    if (Date.now() > end) throw new Error(`timeout: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

let built;

/** Returns the leased binary: TEST_BINARY, or built from this repository. */
export function program() {
  if (process.env.TEST_BINARY) return process.env.TEST_BINARY;
  if (!built) {
    built = join(mkdtempSync(join(tmpdir(), "leased-bin-")), "leased");
    execFileSync("go", ["build", "-o", built, "./cmd/leased"], { cwd: root });
  }
  return built;
}

/** Starts a member of the service, with Redis nodes unless flags say otherwise. */
export async function startMember(...flags) {
  const folder = mkdtempSync(join(tmpdir(), "leased-member-"));
  const address = `127.0.0.1:${await freePort()}`;
  const url = `http://${address}`;
  const args = ["dev", "--listen", address, "--raft-listen", `127.0.0.1:${await freePort()}`, "--data", folder, ...flags];
  const child = spawn(program(), args, { stdio: ["ignore", "ignore", "inherit"] });
  const ended = new Promise((resolve) => child.once("exit", resolve));
  const call = async (method, body) => {
    let answer;
    await eventually(`${method} is served`, async () => {
      const response = await fetch(`${url}/v1/${method}`, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
      answer = await response.json();
      return response.ok;
    });
    return answer;
  };
  const ready = () => fetch(`${url}/readyz`).then((r) => r.ok, () => false);
  await eventually("the service is ready", ready);
  const stop = async () => {
    child.kill("SIGCONT");
    child.kill("SIGTERM");
    await ended;
    rmSync(folder, { recursive: true, force: true });
  };
  return { url, child, call, ready, stop };
}

/** Starts a PostgreSQL server with the fences of leased. */
export async function startPostgres() {
  const version = readdirSync("/usr/lib/postgresql").sort().at(-1);
  const tools = `/usr/lib/postgresql/${version}/bin`;
  const folder = mkdtempSync(join(tmpdir(), "leased-node-"));
  const user = {};
  if (process.geteuid() === 0) {
    user.uid = Number(execFileSync("id", ["-u", "postgres"]));
    user.gid = Number(execFileSync("id", ["-g", "postgres"]));
    chownSync(folder, user.uid, user.gid);
  }
  const data = join(folder, "data");
  execFileSync(`${tools}/initdb`, ["-D", data, "-U", "postgres", "-A", "trust", "--no-sync"], { cwd: folder, stdio: "ignore", ...user });
  const port = await freePort();
  const args = ["-D", data, "-p", String(port), "-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=", "-c", "fsync=off"];
  const child = spawn(`${tools}/postgres`, args, { cwd: folder, stdio: "ignore", ...user });
  const ended = new Promise((resolve) => child.once("exit", resolve));
  const url = `postgresql://postgres@127.0.0.1:${port}/postgres`;
  await eventually("PostgreSQL is ready", () => {
    try {
      execFileSync("psql", [url, "-c", "SELECT 1"], { stdio: "ignore" });
      return true;
    } catch {
      return false;
    }
  });
  const ddl = execFileSync(program(), ["gate", "ddl", "--dialect", "postgres"]);
  execFileSync("psql", ["-q", "-v", "ON_ERROR_STOP=1", url], { input: ddl });
  const stop = async () => {
    child.kill("SIGQUIT");
    await ended;
    rmSync(folder, { recursive: true, force: true });
  };
  return { url, stop };
}
