// The view of the cluster: its members, and the Redis nodes of efficiency mode.
import { KeyedList, el, setAttribute, setHidden, setText, setToken } from "./dom.js";
import { count, duration, millis, token } from "./format.js";

const memberColumns = [["id", "Member"], ["state", "State"], ["term", "Term"], ["applied", "Applied index"], ["lag", "Lag"], ["hash", "Chain hash"],
  ["sessions", "Sessions"], ["version", "Version"], ["address", "API address"]];
const nodeColumns = [["address", "Redis node"], ["state", "State"], ["version", "Version"], ["range", "Range"], ["max", "Largest token"],
  ["skew", "Clock skew"]];
const titles = {
  hash: "A hash of all log entries that the member has applied, and the index of the last one. Members with the same index must have the same hash.",
  range: "The tokens that the node may accept. A node that lost its data gets a new range above all tokens that it may have accepted.",
  lag: "The number of log entries that the leader has committed and the member has not applied.",
};
const numbers = new Set(["term", "applied", "lag", "sessions", "max", "skew"]);

// openCluster shows the cluster.
export function openCluster(main, page) {
  document.title = "Cluster · leased";
  const view = new ClusterView();
  main.replaceChildren(view.node);
  page.watch({ view: "cluster" });
  return view;
}

class ClusterView {
  constructor() {
    this.alarm = el("p", { class: "message bad", role: "alert", hidden: true });
    this.totals = {};
    const tile = (key, label) => {
      this.totals[key] = el("dd", {}, "—");
      return el("div", {}, el("dt", {}, label), this.totals[key]);
    };
    this.redisState = el("p", { class: "message", role: "status" });
    this.members = newTable("Members", memberColumns, updateMember);
    this.nodes = newTable("Redis nodes", nodeColumns, updateNode);
    this.fleet = el("p", { class: "muted small" });
    this.node = el("section", { class: "cluster" }, el("h1", {}, "Cluster"), this.alarm,
      el("dl", { class: "totals" }, tile("leader", "leader"), tile("term", "term"), tile("voters", "voters reachable"), tile("token", "last token"), tile("redis", "Redis nodes voting")),
      el("h2", {}, "Members"), this.members.table,
      el("h2", {}, "Redis nodes"), this.redisState, this.nodes.table, this.fleet);
  }

  receive(type, data) {
    if (type !== "cluster") return;
    this.updateMembers(data.cluster ?? {});
    this.updateFleet(data.fleet ?? {});
  }

  updateMembers(cluster) {
    const members = cluster.members ?? [];
    const leader = members.find((m) => m.status?.serves)?.status ?? members.find((m) => m.status?.state === "leader")?.status;
    const asked = leader ?? members.find((m) => m.status)?.status;
    const known = new Map((asked?.members ?? []).map((m) => [m.id, m]));
    const differing = differentHashes(members);
    for (const m of members) {
      m.entry = known.get(m.id) ?? {};
      m.differs = differing.has(m.id);
    }
    const voters = members.filter((m) => m.entry.voter);
    const reached = voters.filter((m) => m.status && m.status.state !== "stopped");
    setText(this.totals.leader, leader?.id ?? "none");
    setAttribute(this.totals.leader.parentNode, "class", leader ? null : "bad");
    setText(this.totals.term, count(asked?.term));
    setText(this.totals.voters, `${reached.length} of ${voters.length}`);
    setAttribute(this.totals.voters.parentNode, "class", reached.length < voters.length ? "bad" : null);
    setToken(this.totals.token, token(asked?.lastToken));
    this.members.list.render(members, (m) => m.id);
    setText(this.alarm, differing.size === 0 ? "" : `The replicas differ: ${[...differing].join(", ")} applied the same entries and have different chain hashes. `
      + "Grants of a wrong replica break the promises of the service. Stop the members in the minority, remove them, and let them join with empty data folders.");
    setHidden(this.alarm, differing.size === 0);
  }

  updateFleet(fleet) {
    const nodes = fleet.nodes ?? [];
    const total = Math.max(nodes.length, (fleet.fleet?.addresses ?? []).length);
    const votes = { voting: nodes.filter(voting).length, total, quorum: Math.floor(total / 2) + 1 };
    const configured = total > 0;
    setText(this.totals.redis, configured ? `${votes.voting} of ${total}` : "none");
    setAttribute(this.totals.redis.parentNode, "class", !configured || votes.voting === total ? null : votes.voting < votes.quorum ? "bad" : "some");
    setHidden(this.nodes.table, nodes.length === 0);
    const [text, kind] = readiness(fleet, votes);
    setText(this.redisState, text);
    setAttribute(this.redisState, "class", `message ${kind}`);
    this.nodes.list.render(nodes, (n) => n.address);
    setText(this.fleet, configured ? [`topology version ${fleet.version ?? 0}`, `tokens above ${count(fleet.floor)} up to ${count(fleet.ceiling)}`,
      fleet.fleet?.namespace && `namespace ${fleet.fleet.namespace}`, fleet.fleet?.maxTtl && `longest TTL ${fleet.fleet.maxTtl}`].filter(Boolean).join(" · ") : "");
  }
}

// differentHashes returns the members that have a chain hash other than another member
// with the same chain index.
function differentHashes(members) {
  const byIndex = new Map();
  for (const { id, status } of members) {
    if (!status?.chainHash) continue;
    const group = byIndex.get(status.chainIndex ?? 0) ?? [];
    group.push({ id, hash: status.chainHash });
    byIndex.set(status.chainIndex ?? 0, group);
  }
  const differing = [...byIndex.values()].filter((group) => new Set(group.map((m) => m.hash)).size > 1);
  return new Set(differing.flat().map((m) => m.id));
}

// readiness says whether efficiency mode is ready, or what it waits for. It is ready if the
// log allows it and a quorum of the Redis nodes votes.
function readiness(fleet, { voting, total, quorum }) {
  if (total === 0) {
    return ["Efficiency mode is off: the cluster has no Redis nodes. 'leased redis fleet set HOST:PORT...' adds them.", ""];
  }
  if (fleet.next) {
    return [`The fleet is changing to ${(fleet.next.addresses ?? []).join(", ") || "no nodes"}. It waits for: ${fleet.waitingFor || "the leader"}`, "warn"];
  }
  const votes = `${voting} of ${total} Redis nodes vote, ${quorum} are needed.`;
  if (voting < quorum) return [`Efficiency mode is not ready: ${votes}`, "bad"];
  if (!fleet.ready) return [`Efficiency mode is not ready. It waits for: ${fleet.waitingFor || "the leader"}`, "warn"];
  return voting < total ? [`Efficiency mode is ready, but not all nodes vote: ${votes}`, "warn"] : ["Efficiency mode is ready.", "good"];
}

function newTable(label, columns, update) {
  const body = el("tbody", { role: "rowgroup" });
  const table = el("table", { class: "rows plain", role: "table", "aria-label": label },
    el("thead", { role: "rowgroup" }, el("tr", { role: "row" }, ...columns.map(([key, text]) => el("th", { scope: "col", role: "columnheader", class: classOf(key), title: titles[key] }, text)))), body);
  const create = () => {
    const row = { cells: {}, node: el("tr", { role: "row" }), error: el("span", { class: "error" }), badge: el("span", { class: "badge" }) };
    for (const [key, text] of columns) {
      row.cells[key] = el("td", { role: "cell", class: classOf(key), "data-label": text });
      row.node.append(row.cells[key]);
    }
    row.cells.state.append(row.badge, row.error);
    return row;
  };
  return { table, list: new KeyedList(body, create, update) };
}

function classOf(key) {
  return numbers.has(key) ? `${key} number` : key;
}

function updateMember(row, member) {
  const { status, entry } = member;
  const { cells } = row;
  const known = status ?? {};
  setText(cells.id, member.id);
  const learner = entry.voter === false || (entry.id && !entry.voter);
  const state = !status ? "unreachable" : known.serves ? "leader" : learner ? "learner" : known.state;
  setText(row.badge, state ?? "unknown");
  setAttribute(row.badge, "class", `badge ${!status ? "bad" : known.serves ? "good" : known.state === "follower" ? "" : "warn"}`);
  setText(row.error, member.error ?? (learner ? joining(known, entry) : entry.wentBack ? "its data folder has gone back in time: remove it, empty its folder and let it join" : ""));
  row.error.classList.toggle("progress", Boolean(learner) && !member.error);
  setText(cells.term, status ? count(known.term) : "—");
  setText(cells.applied, status ? count(known.appliedIndex) : "—");
  setText(cells.lag, known.serves ? "—" : entry.lag === undefined ? "unknown" : `${count(entry.lag)}`);
  setText(cells.hash, known.chainHash ? `${known.chainHash.slice(0, 12)} at ${count(known.chainIndex)}${member.differs ? ", differs" : ""}` : "—");
  setAttribute(cells.hash, "title", known.chainHash ?? null);
  cells.hash.classList.toggle("bad", member.differs);
  setText(cells.sessions, status ? count(known.sessions) : "—");
  setText(cells.version, known.version || "—");
  setText(cells.address, known.apiAddress || entry.apiAddress || "—");
}

// joining says how far a member is that does not vote yet.
function joining(status, { lag }) {
  if (lag === undefined) return "joining: the leader has not reached it yet";
  const share = Math.floor((100 * (status.appliedIndex ?? 0)) / Math.max(1, (status.appliedIndex ?? 0) + lag));
  return lag > 0 ? `joining: ${share} %, ${count(lag)} log entries are missing` : "joining: it has all log entries, and votes soon";
}

// voting reports whether a Redis node votes.
function voting(node) {
  return !node.error && !node.empty && !node.unnamed;
}

function nodeState(node) {
  const left = millis(node.quarantine);
  if (voting(node)) return { text: "votes", kind: "good" };
  if (node.error) return { text: "unreachable", kind: "bad" };
  const state = node.empty ? "empty" : "another run of the server";
  return { text: left > 0 ? `${state}, votes in ${duration(left)}` : `${state}, does not vote`, kind: "warn" };
}

function updateNode(row, node) {
  const { cells } = row;
  const state = nodeState(node);
  setText(cells.address, node.address);
  setText(row.badge, state.text);
  setAttribute(row.badge, "class", `badge ${state.kind}`);
  setText(row.error, node.error ?? "");
  const known = voting(node);
  setText(cells.version, known ? String(node.version ?? 0) : "—");
  setText(cells.range, known ? `${count(node.floor)} to ${count(node.ceiling)}` : "—");
  setToken(cells.max, known ? token(node.max) : "—");
  setText(cells.skew, node.skew || (known ? "0 ms" : "—"));
}
