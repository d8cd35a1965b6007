// The view of one lock: its holders, its queue and its recent history.
import { KeyedList, el, setAttribute, setHidden, setText, setToken } from "./dom.js";
import { age, clock, count, countdown, millis, shellQuote, shortMessage, token, zone } from "./format.js";
import { Timeline } from "./timeline.js";
import { serviceClock } from "./live.js";
import { openBreak } from "./break.js";

// openLock shows the lock with a name.
export function openLock(main, page, name) {
  document.title = `${name} · leased`;
  const view = new LockView(name);
  main.replaceChildren(view.node);
  page.watch({ view: "lock", resource: name });
  return view;
}

class LockView {
  constructor(name) {
    this.name = name;
    this.mode = el("span", { class: "badge" });
    this.policy = el("a", { href: "#/policies" });
    this.permits = el("span", { class: "muted" });
    this.free = el("div", { class: "panel free" }, el("p", { class: "big" }, "Loading"), el("p", { class: "muted" }));
    this.holderList = el("div", { class: "holders" });
    this.queueCount = el("span", { class: "count" });
    this.queueList = el("ol", { class: "queue" });
    this.queueEmpty = el("p", { class: "muted" }, "Nobody waits for this lock.");
    this.timeline = new Timeline();
    this.message = el("p", { class: "message good", role: "status", hidden: true });
    this.migration = el("p", { class: "message warn", role: "status", hidden: true });
    this.stuckFacts = el("ul", {});
    this.stuckCommand = el("code", {});
    this.stuck = el("section", { class: "panel stuck", "aria-labelledby": "stuck-title", hidden: true },
      el("h2", { id: "stuck-title" }, "Why others wait"), this.stuckFacts, el("p", { class: "muted" }, "This command takes the lock away from its holder:"), el("pre", {}, this.stuckCommand));
    this.columns = el("div", { class: "columns", hidden: true },
      el("section", { class: "panel", "aria-labelledby": "queue-title" }, el("h2", { id: "queue-title" }, "Queue ", this.queueCount), this.queueEmpty, this.queueList),
      this.timeline.node);
    this.node = el("article", { class: "lock" },
      el("p", { class: "crumbs" }, el("a", { href: "#/" }, "Locks"), el("span", { "aria-hidden": "true" }, " / ")),
      el("header", { class: "lock-head" }, el("h1", { class: "name" }, name), this.mode, this.policy, this.permits),
      this.message, this.migration, this.stuck,
      el("section", { "aria-label": "Holders" }, this.free, this.holderList), this.columns);
    this.holders = new KeyedList(this.holderList, () => newHolder((party) => this.break(party)), (row, party) => updateHolder(row, party, this.mayBreak));
    this.waiters = new KeyedList(this.queueList, newWaiter, updateWaiter);
  }

  receive(type, data, now) {
    if (type !== "lock") return;
    const lock = data.lock ?? {};
    const holders = lock.holders ?? [];
    const waiters = lock.waiters ?? [];
    this.lock = lock;
    this.mayBreak = Boolean(data.mayBreak);
    for (const party of [...holders, ...waiters]) party.receivedAt = now;
    setText(this.mode, lock.mode ?? "");
    setAttribute(this.mode, "class", `badge ${lock.mode ?? ""}`);
    setText(this.policy, data.policy === undefined ? "no policy" : `policy ${data.policy}*`);
    setAttribute(this.policy, "href", data.policy === undefined ? "#/policies" : `#/policies?prefix=${encodeURIComponent(data.policy)}`);
    setText(this.permits, lock.permits ? `${count(holders.length)} of ${count(lock.permits)} permits are held` : "");
    this.updateMigration(data.migration);
    setHidden(this.columns, false);
    setHidden(this.free, holders.length > 0);
    setText(this.free.firstChild, lock.delayed ? "In lock delay" : "Free");
    setText(this.free.lastChild, lock.delayed
      ? "The last holder was lost. The lock is granted again when the lock delay of its policy has passed."
      : lastHolder(data.history?.events ?? []));
    this.holders.render(holders, partyKey);
    waiters.forEach((party, i) => { party.place = i + 1; });
    setText(this.queueCount, waiters.length > 0 ? count(waiters.length) : "");
    setHidden(this.queueEmpty, waiters.length > 0);
    this.waiters.render(waiters, partyKey);
    this.updateStuck(holders, waiters, data.history?.events ?? []);
    this.timeline.update(data.history ?? {}, holders, lock.mode);
    this.tick(now);
  }

  // updateMigration says that the lock changes its mode, and is not granted until then.
  updateMigration(m) {
    setText(this.migration, m ? `The lock is migrating from ${m.from} to ${m.to} mode and is not granted until that is done. The migration waits for: ${m.waitingFor || "the leader"}. `
      + "Clients that wait try again by themselves; they join the queue when the migration is done." : "");
    setHidden(this.migration, !m);
    setText(this.queueEmpty, m ? "Nobody is queued during the migration." : "Nobody waits for this lock.");
  }

  // updateStuck says who keeps the others waiting, and with which command an operator would free the lock.
  updateStuck(holders, waiters, events) {
    const holder = holders[0];
    setHidden(this.stuck, !holder || waiters.length === 0);
    if (!holder || waiters.length === 0) return;
    const longest = Math.max(...waiters.map((party) => millis(party.age) ?? 0));
    const refused = events.filter((e) => e.type === "refused").length;
    const facts = [
      `${holder.holder || "An unnamed holder"} has held it ${holder.since ? `since ${clock(holder.since)}` : "for an unknown time"}${holders.length > 1 ? `, and ${count(holders.length - 1)} more` : ""}.`,
      holder.ttlLeft ? `${holder.renewed ? `It last renewed its lease at ${clock(serviceClock.now() - millis(holder.renewed))}. ` : ""}Without a renewal, the lease ends within ${age(millis(holder.ttlLeft))}.` : "",
      holder.client ? `Its client is ${holder.client}.` : "",
      `${count(waiters.length)} ${waiters.length === 1 ? "client waits" : "clients wait"}, up to ${age(longest)}.`,
      refused > 0 ? `A gate has refused ${count(refused)} writes of former holders.` : "",
    ].filter(Boolean);
    const key = JSON.stringify(facts);
    if (this.stuckKey !== key) {
      this.stuckKey = key;
      this.stuckFacts.replaceChildren(...facts.map((text) => el("li", {}, text)));
    }
    setText(this.stuckCommand, `leased break ${shellQuote(this.name)} --token ${holder.token || "TOKEN"}`);
  }

  // fail shows why there is no data, unless there was some before that the caller may
  // still see.
  fail(error) {
    if (this.lock && error.status !== 403) return;
    setText(this.free.firstChild, "Not available");
    setText(this.free.lastChild, shortMessage(error));
    setHidden(this.free, false);
    setHidden(this.columns, true);
    setHidden(this.stuck, true);
    this.updateMigration(null);
    this.holders.render([], partyKey);
  }

  // break asks for a confirmation, and breaks the lease that was shown when it asked.
  break(party) {
    openBreak(this.lock, party, (text) => {
      setText(this.message, text);
      setHidden(this.message, false);
    });
  }

  tick(now) {
    for (const row of this.holders.rows.values()) tickHolder(row, now);
    for (const row of this.waiters.rows.values()) tickWaiter(row, now);
  }
}

// lastHolder says who held a free lock before. The events are newest first.
function lastHolder(events) {
  const last = events.find((e) => ["released", "expired", "broken", "ended"].includes(e.type));
  if (!last) return "Nobody holds this lock.";
  return `Nobody holds this lock. The last holder was ${last.party?.holder || "unnamed"}, until ${clock(last.time)} (${last.type}).`;
}

// partyKey identifies a holder or a waiter. Users without the right to break see no
// tokens and sessions; the name and the time tell their parties apart.
function partyKey(party) {
  return JSON.stringify([party.token ?? 0, party.sessionId ?? "", party.nonce ?? 0, party.holder ?? "", party.slot ?? 0, party.token ? "" : party.since ?? party.place ?? ""]);
}

function newHolder(onBreak) {
  const row = { facts: {} };
  row.name = el("p", { class: "big who" });
  row.user = el("p", { class: "muted" });
  const facts = el("dl", { class: "facts" });
  for (const [key, label] of [["held", "held for"], ["since", `since (${zone})`], ["left", "time left"], ["token", "token"], ["kind", "kind"], ["renewed", "last renewal"], ["client", "client"], ["session", "session"]]) {
    row.facts[key] = el("dd", {});
    facts.append(el("div", { class: key }, el("dt", {}, label), row.facts[key]));
  }
  row.metadata = el("dl", { class: "metadata" });
  row.button = el("button", { type: "button", class: "danger", onclick: () => onBreak(row.party) }, "Break…");
  row.node = el("section", { class: "panel holder" }, el("div", { class: "holder-head" }, el("div", {}, el("p", { class: "label" }, "held by"), row.name, row.user), row.button), facts, row.metadata);
  return row;
}

function updateHolder(row, party, mayBreak) {
  row.party = party;
  row.ageAt = millis(party.age);
  row.leftAt = millis(party.ttlLeft);
  setText(row.name, party.holder || "unnamed holder");
  setText(row.user, party.user ? `user ${party.user}` : "");
  setHidden(row.user, !party.user);
  const { facts } = row;
  setToken(facts.token, token(party.token));
  setText(facts.since, party.since ? clock(party.since) : "unknown");
  setAttribute(facts.since, "title", party.since ?? null);
  setText(facts.kind, `${party.kind || "exclusive"}${party.slot ? ` ${party.slot}` : ""}`);
  row.renewedAt = millis(party.renewed);
  setHidden(facts.renewed.parentNode, row.renewedAt === null);
  for (const [fact, text] of [["session", party.sessionId], ["client", party.client]]) {
    setText(facts[fact], text ?? "");
    setHidden(facts[fact].parentNode, !text);
  }
  setHidden(facts.token.parentNode, !party.token);
  const metadata = Object.entries(party.metadata ?? {});
  const key = JSON.stringify(metadata);
  if (row.metadataKey !== key) {
    row.metadataKey = key;
    row.metadata.replaceChildren(...metadata.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))));
  }
  setHidden(row.metadata, metadata.length === 0);
  setHidden(row.button, !mayBreak || !party.token);
}

function tickHolder(row, now) {
  const passed = now - row.party.receivedAt;
  setText(row.facts.held, row.ageAt === null ? "unknown" : age(row.ageAt + passed));
  setText(row.facts.renewed, row.renewedAt === null ? "" : `${age(row.renewedAt + passed)} ago`);
  setText(row.facts.left, row.leftAt === null ? "unknown" : countdown(row.leftAt - passed));
}

function newWaiter() {
  const row = { place: el("span", { class: "place" }), name: el("span", { class: "who" }), note: el("span", { class: "note" }), time: el("span", { class: "number" }) };
  row.node = el("li", {}, row.place, el("span", {}, row.name, row.note), row.time);
  return row;
}

function updateWaiter(row, party) {
  row.party = party;
  row.ageAt = millis(party.age);
  setText(row.place, String(party.place));
  setText(row.name, party.holder || "unnamed");
  setText(row.note, [party.user ? `user ${party.user}` : "", party.kind && party.kind !== "exclusive" ? party.kind : ""].filter(Boolean).join(", "));
}

function tickWaiter(row, now) {
  setText(row.time, row.ageAt === null ? "" : `waiting ${age(row.ageAt + now - row.party.receivedAt)}`);
}
