// The view of the policies, and of the migrations that are running.
import { KeyedList, el, setAttribute, setHidden, setText } from "./dom.js";
import { count, shellQuote } from "./format.js";

const columns = [["prefix", "Prefix"], ["mode", "Mode"], ["ttl", "TTL"], ["renew", "Renewal"], ["drift", "Drift"], ["lockDelay", "Lock delay"]];
const numbers = new Set(["ttl", "renew", "drift", "lockDelay"]);

// openPolicies shows the policies.
export function openPolicies(main, page) {
  document.title = "Policies · leased";
  const view = new PoliciesView(page.query.get("prefix"));
  main.replaceChildren(view.node);
  page.watch({ view: "policies" });
  return view;
}

class PoliciesView {
  // marked is the prefix of the policy to mark, null for none.
  constructor(marked) {
    this.marked = marked;
    const body = el("tbody", { role: "rowgroup" });
    this.table = el("table", { class: "rows plain", role: "table", "aria-label": "Policies" },
      el("thead", { role: "rowgroup" }, el("tr", { role: "row" }, ...columns.map(([key, text]) => el("th", { scope: "col", role: "columnheader", class: classOf(key) }, text)))), body);
    this.version = el("p", { class: "muted small" });
    this.empty = el("div", { class: "empty panel", hidden: true }, el("h2", {}, "There are no policies"),
      el("p", {}, "All locks are in correctness mode with the default timings. To put the locks of a prefix into efficiency mode:"),
      el("pre", {}, el("code", {}, "leased policy set 'report/*' --mode efficiency")));
    this.migrations = el("div", { class: "migrations" });
    this.outdated = el("p", { class: "message warn", hidden: true });
    this.node = el("section", { class: "policies" }, el("h1", {}, "Policies"),
      el("p", { class: "muted" }, "The mode and the timings of locks, by the prefix of their names. The longest matching prefix applies. Locks without a policy are in correctness mode."),
      this.migrations, this.outdated, this.table, this.empty, this.version);
    this.rows = new KeyedList(body, newPolicy, updatePolicy);
    this.cards = new KeyedList(this.migrations, newMigration, updateMigration);
  }

  receive(type, data) {
    if (type !== "policies") return;
    const policies = data.policies ?? [];
    setHidden(this.table, policies.length === 0);
    setHidden(this.empty, policies.length > 0);
    for (const p of policies) p.marked = (p.prefix ?? "") === this.marked;
    this.rows.render(policies, (p) => p.prefix ?? "");
    this.cards.render(data.migrations ?? [], (m) => m.prefix ?? "");
    setText(this.version, `topology version ${data.version ?? 0}`);
    const differing = differences(policies, data.filePolicies ?? []);
    setText(this.outdated, differing.length === 0 ? "" : `The configuration file of member ${data.member} differs from the policies in effect, for ${differing.join(", ")}. The file has no effect on a running cluster.`);
    setHidden(this.outdated, differing.length === 0);
  }
}

// differences returns the prefixes whose policy in the file is not the one in effect.
// A member without policies in its file has nothing to differ.
function differences(policies, file) {
  const active = new Map(policies.map((p) => [p.prefix ?? "", p]));
  return file.filter((p) => {
    const other = active.get(p.prefix ?? "");
    return !other || ["mode", "ttl", "renew", "drift", "lockDelay"].some((key) => p[key] && p[key] !== other[key]);
  }).map((p) => shown(p.prefix));
}

function shown(prefix) {
  return `${prefix ?? ""}*`;
}

function classOf(key) {
  return numbers.has(key) ? `${key} number` : key;
}

function newPolicy() {
  const row = { cells: {}, node: el("tr", { role: "row" }), badge: el("span", { class: "badge" }), note: el("span", { class: "note" }) };
  for (const [key, text] of columns) {
    row.cells[key] = el("td", { role: "cell", class: classOf(key), "data-label": text });
    row.node.append(row.cells[key]);
  }
  row.cells.mode.append(row.badge, row.note);
  return row;
}

function updatePolicy(row, policy) {
  setText(row.cells.prefix, shown(policy.prefix));
  setAttribute(row.node, "aria-current", policy.marked ? "true" : null);
  setText(row.badge, policy.mode ?? "");
  setAttribute(row.badge, "class", `badge ${policy.mode}`);
  setText(row.note, policy.next ? `migrating to ${policy.next}` : "");
  for (const key of numbers) setText(row.cells[key], policy[key] || (key === "lockDelay" ? "none" : "default"));
}

function newMigration() {
  const row = { title: el("h2", {}), waiting: el("p", {}), holders: el("p", { class: "muted" }) };
  row.node = el("section", { class: "panel migration" }, row.title, row.waiting, row.holders);
  return row;
}

function updateMigration(row, m) {
  setText(row.title, `${shown(m.prefix)} is migrating from ${m.from} to ${m.to} mode`);
  setText(row.waiting, `It waits for: ${m.waitingFor || "the leader"}. Until it is done, these locks are not granted.`);
  const held = m.from === "correctness" ? `${count(m.holders)} ${m.holders === 1 ? "lock" : "locks"} still held${m.now ? "; it does not wait for leases to end" : ""}. ` : "";
  setText(row.holders, `${held}To abort the migration: leased policy set ${shellQuote(shown(m.prefix))} --abort`);
}
