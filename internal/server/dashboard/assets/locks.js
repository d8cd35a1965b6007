// The view of all locks: totals, search, and one page of a table that the service
// sorts. The service sends only the rows of the page.
import { KeyedList, el, setAttribute, setHidden, setText, setToken } from "./dom.js";
import { age, clock, count, countdown, millis, rate, token } from "./format.js";

const pageSize = 100;
const searchDelay = 200;
// While the pointer moves over the table, rows keep their places for this long after the
// last movement, so that nobody clicks a row that has just moved there.
const holdMillis = 3000;

const refusedNote = "Refused writes that programs reported to this leader. Only the leader that received a report knows it.";

const orders = [
  ["queue", "longest queue"], ["held", "longest held"], ["rate", "busiest"], ["refused", "most refused writes"], ["name", "name"],
];
const columns = [
  { key: "name", label: "Lock", sort: "name" }, { key: "mode", label: "Mode" }, { key: "holder", label: "Holder" },
  { key: "held", label: "Held for", sort: "held", number: true }, { key: "token", label: "Token", number: true },
  { key: "left", label: "Time left", number: true }, { key: "queue", label: "Queue", sort: "queue", number: true },
  { key: "rate", label: "Grants/s", sort: "rate", number: true }, { key: "refused", label: "Refused", sort: "refused", number: true, title: refusedNote },
];

// openLocks shows the locks that the parameters of the URL select.
export function openLocks(main, page) {
  document.title = "Locks · leased";
  const view = new LocksView(page);
  main.replaceChildren(view.node);
  view.watch();
  return view;
}

class LocksView {
  constructor(page) {
    this.page = page;
    this.filter = {
      search: page.query.get("search") ?? "", mode: page.query.get("mode") ?? "", sort: page.query.get("sort") ?? "queue",
      number: Math.max(1, Number.parseInt(page.query.get("page"), 10) || 1),
    };
    this.listed = 0;
    this.heldUntil = 0;
    this.node = el("section", { class: "locks", "aria-labelledby": "locks-title" },
      el("h1", { id: "locks-title", class: "visually-hidden" }, "Locks"), this.newTotals(), this.newTools(), this.newTable(), this.newEmpty(), this.newPager(), this.found);
    this.list = new KeyedList(this.body, newRow, updateRow);
  }

  newTotals() {
    this.totals = {};
    const tile = (key, label, title) => {
      this.totals[key] = el("dd", {}, "—");
      return el("div", { title }, el("dt", {}, label), this.totals[key]);
    };
    return el("dl", { class: "totals" }, tile("locks", "locks in use"), tile("holders", "holders"), tile("waiters", "waiting"),
      tile("rate", "grants/s"), tile("refused", "refused writes", refusedNote));
  }

  newTools() {
    this.search = el("input", { id: "search", type: "search", placeholder: "Search names, holders, users", value: this.filter.search, spellcheck: "false",
      autocapitalize: "off", autocomplete: "off", "aria-label": "Search locks by name, holder or user", "aria-keyshortcuts": "/", oninput: () => this.searchSoon() });
    this.search.addEventListener("keydown", (event) => {
      if (event.key !== "ArrowDown" && event.key !== "Enter") return;
      event.preventDefault();
      this.body.querySelector("a")?.focus();
    });
    this.mode = select("mode", "Mode", [["", "both modes"], ["correctness", "correctness"], ["efficiency", "efficiency"]], this.filter.mode,
      (value) => this.change({ mode: value }));
    this.sort = select("sort", "Sort", orders, this.filter.sort, (value) => this.change({ sort: value }));
    return el("form", { class: "tools", role: "search", onsubmit: (event) => event.preventDefault() },
      el("span", { class: "search" }, this.search, el("kbd", { "aria-hidden": "true" }, "/")),
      el("label", {}, el("span", {}, "Mode"), this.mode), el("label", {}, el("span", {}, "Sort by"), this.sort));
  }

  newTable() {
    const head = el("tr", { role: "row" });
    this.heads = new Map();
    for (const c of columns) {
      const cell = el("th", { scope: "col", role: "columnheader", class: `${c.key}${c.number ? " number" : ""}` });
      if (c.sort) {
        cell.append(el("button", { type: "button", title: c.title, onclick: () => this.change({ sort: c.sort }) }, c.label));
        this.heads.set(c.sort, cell);
      } else {
        cell.append(c.label);
      }
      head.append(cell);
    }
    this.body = el("tbody", { role: "rowgroup", onkeydown: (event) => moveFocus(event, this.body),
      onpointermove: (event) => { if (event.pointerType === "mouse") this.heldUntil = performance.now() + holdMillis; },
      onpointerleave: () => { this.heldUntil = 0; this.apply(); } });
    this.table = el("table", { class: "rows", role: "table", "aria-label": "Locks in use" }, el("thead", { role: "rowgroup" }, head), this.body);
    return this.table;
  }

  newEmpty() {
    this.empty = el("div", { class: "empty panel", hidden: true });
    this.missingText = el("span", {});
    this.missingLink = el("a", { href: "#/cluster" }, "Show the Redis nodes");
    this.missing = el("p", { class: "message warn", hidden: true }, this.missingText, this.missingLink);
    return el("div", {}, this.missing, this.empty);
  }

  newPager() {
    this.range = el("span", {});
    this.found = el("span", { class: "visually-hidden", role: "status", "aria-live": "polite" });
    this.previous = el("button", { type: "button", onclick: () => this.turn(-1) }, "Previous");
    this.next = el("button", { type: "button", onclick: () => this.turn(1) }, "Next");
    return el("nav", { class: "pager", "aria-label": "Pages of the table" }, this.range, this.previous, this.next);
  }

  searchSoon() {
    clearTimeout(this.typing);
    this.typing = setTimeout(() => this.change({ search: this.search.value }), searchDelay);
  }

  turn(by) {
    this.change({ number: this.filter.number + by });
    window.scrollTo(0, 0);
  }

  change(to) {
    this.filter = { ...this.filter, number: 1, ...to };
    const query = new URLSearchParams();
    if (this.filter.search) query.set("search", this.filter.search);
    if (this.filter.mode) query.set("mode", this.filter.mode);
    if (this.filter.sort !== "queue") query.set("sort", this.filter.sort);
    if (this.filter.number > 1) query.set("page", this.filter.number);
    this.page.replaceQuery(query);
    this.heldUntil = 0;
    this.announces = true;
    this.watch();
  }

  watch() {
    const { search, mode, sort, number } = this.filter;
    this.sort.value = sort;
    for (const [key, cell] of this.heads) {
      setAttribute(cell, "aria-sort", key !== sort ? null : key === "name" ? "ascending" : "descending");
    }
    this.table.setAttribute("aria-busy", "true");
    this.page.watch({ view: "locks", search, mode, sort, offset: (number - 1) * pageSize, limit: pageSize });
  }

  receive(type, data, now) {
    if (type !== "locks") return;
    this.pending = { data, now };
    this.apply();
  }

  // apply shows the last response. While the pointer is over the table, it updates the
  // rows in their places and leaves additions and removals for later.
  apply() {
    if (!this.pending) return;
    const { data, now } = this.pending;
    const locks = data.locks ?? [];
    for (const lock of locks) lock.receivedAt = now;
    this.updateTotals(data);
    if (performance.now() < this.heldUntil && this.list.rows.size > 0) {
      const byName = new Map(locks.map((l) => [l.lock.resource, l]));
      for (const [name, row] of this.list.rows) {
        const item = byName.get(name);
        row.node.classList.toggle("gone", !item);
        if (item) updateRow(row, item);
      }
      this.held = true;
      return;
    }
    this.pending = null;
    this.held = false;
    this.table.setAttribute("aria-busy", "false");
    this.list.render(locks, (item) => item.lock.resource);
    this.updateEmpty(locks.length);
    if (this.announces) { // the result of a search, not every later change
      this.announces = false;
      setText(this.found, `${count(this.listed)} locks match`);
    }
  }

  updateTotals(data) {
    this.listed = data.listed ?? 0;
    setText(this.totals.locks, count(data.totalLocks));
    setText(this.totals.holders, count(data.totalHolders));
    setText(this.totals.waiters, count(data.totalWaiters));
    setText(this.totals.rate, rate(data.grantsPerSecond));
    setText(this.totals.refused, count(data.refused));
    setAttribute(this.totals.refused.parentNode, "class", data.refused ? "bad" : null);
    setText(this.missingText, data.missing ? `Locks in efficiency mode are missing: ${data.missing.split(/;|\n/)[0]}. ` : "");
    setHidden(this.missingLink, !data.missing?.includes("Redis"));
    setHidden(this.missing, !data.missing);
    const first = (this.filter.number - 1) * pageSize;
    const shown = data.locks?.length ?? 0;
    setText(this.range, shown === 0 ? "" : `${count(first + 1)} to ${count(first + shown)} of ${count(this.listed)}`);
    this.previous.disabled = this.filter.number === 1;
    this.next.disabled = first + shown >= this.listed;
    setHidden(this.previous.parentNode, this.previous.disabled && this.next.disabled && shown < 10);
  }

  updateEmpty(shown) {
    setHidden(this.table, shown === 0);
    setHidden(this.empty, shown > 0);
    if (shown > 0) return;
    const { search, mode, number } = this.filter;
    const key = JSON.stringify([search, mode, number]);
    if (this.empty.dataset.key === key) return;
    this.empty.dataset.key = key;
    if (number > 1) {
      this.empty.replaceChildren(el("p", {}, "This page is empty now. "), button("Show the first page", () => this.change({ number: 1 })));
    } else if (search || mode) {
      this.empty.replaceChildren(el("h2", {}, "No lock in use matches"),
        el("p", {}, "A lock is listed while somebody holds it or waits for it. The page of a free lock has its recent history."),
        el("p", {}, search ? el("a", { href: `#/lock/${encodeURIComponent(search)}` }, "Show the lock ", el("code", {}, search)) : null),
        button("Show all locks", () => { this.search.value = this.mode.value = ""; this.change({ search: "", mode: "" }); }));
    } else {
      this.empty.replaceChildren(...firstSteps(this.page.caller));
    }
  }

  tick(now) {
    if (this.held && now >= this.heldUntil) this.apply();
    for (const row of this.list.rows.values()) tickRow(row, now);
  }

  close() {
    clearTimeout(this.typing);
  }
}

// firstSteps says how to take a lock, for a service without locks.
function firstSteps(caller) {
  const header = caller?.users ? ' -H "authorization: Bearer $SECRET"' : "";
  return [el("h2", {}, "No lock is in use"),
    el("p", {}, "Locks appear here while somebody holds them or waits for them. Take one for 30 seconds:"),
    el("pre", {}, el("code", {}, `curl -s${header} -H 'content-type: application/json' \\\n  -d '{"resource":"jobs/42","ttl":"30s","holder":"me"}' \\\n  ${location.origin}/v1/acquire`)),
    el("p", { class: "muted" }, "Or hold one while a command runs: ", el("code", {}, "leased run jobs/42 -- sleep 60"))];
}

function button(label, onclick) {
  return el("button", { type: "button", onclick }, label);
}

function select(id, label, options, value, changed) {
  const node = el("select", { id, "aria-label": label, onchange: () => changed(node.value) },
    ...options.map(([key, text]) => el("option", { value: key }, text)));
  node.value = value;
  return node;
}

// newRow returns an empty row. Its link covers the whole row.
function newRow(item) {
  const name = item.lock.resource;
  const row = { link: el("a", { href: `#/lock/${encodeURIComponent(name)}`, title: name }, name), cells: {} };
  row.node = el("tr", { role: "row" });
  for (const c of columns) {
    row.cells[c.key] = el("td", { role: "cell", class: `${c.key}${c.number ? " number" : ""}`, "data-label": c.label });
    row.node.append(row.cells[c.key]);
  }
  row.cells.name.append(row.link);
  row.badge = el("span", { class: "badge" });
  row.cells.mode.append(row.badge);
  row.holder = el("span", { class: "who" });
  row.note = el("span", { class: "note" });
  row.cells.holder.append(row.holder, row.note);
  return row;
}

function updateRow(row, item) {
  const { lock } = item;
  const holders = lock.holders ?? [];
  const first = holders[0];
  row.item = item;
  row.heldAt = first ? millis(first.age) : null;
  row.leftAt = first ? millis(first.ttlLeft) : null;
  row.node.classList.remove("gone");
  setText(row.badge, lock.mode ?? "");
  setAttribute(row.badge, "class", `badge ${lock.mode}`);
  setText(row.holder, first ? first.holder || "unnamed" : lock.delayed ? "in lock delay" : "nobody");
  row.holder.classList.toggle("none", !first?.holder);
  setAttribute(row.holder, "title", first?.holder ?? null);
  const notes = [first?.user && first.user !== first.holder ? `user ${first.user}` : "", lock.permits ? `${count(item.holders)} of ${count(lock.permits)} permits` : item.holders > 1 ? `and ${count(item.holders - 1)} more` : ""];
  setText(row.note, notes.filter(Boolean).join(", "));
  setToken(row.cells.token, token(first?.token));
  setText(row.cells.queue, count(item.waiters));
  // Go programs take these leases from the Redis nodes directly, so the service does not count them.
  const uncounted = lock.mode === "efficiency" && !item.grantsPerSecond;
  setText(row.cells.rate, uncounted ? "—" : rate(item.grantsPerSecond));
  setAttribute(row.cells.rate, "title", lock.mode === "efficiency" ? "Grants that programs take from the Redis nodes directly are not counted." : null);
  setText(row.cells.refused, count(item.refused));
  row.cells.queue.classList.toggle("zero", !item.waiters);
  row.cells.rate.classList.toggle("zero", !item.grantsPerSecond);
  row.cells.refused.classList.toggle("zero", !item.refused);
  row.cells.refused.classList.toggle("bad", Boolean(item.refused));
  setAttribute(row.cells.held, "title", first?.since ? `since ${clock(first.since)}` : null);
  tickRow(row, performance.now());
}

function tickRow(row, now) {
  const passed = now - row.item.receivedAt;
  setText(row.cells.held, row.heldAt === null ? "—" : age(row.heldAt + passed));
  setText(row.cells.left, row.leftAt === null ? "—" : countdown(row.leftAt - passed));
  row.cells.left.classList.toggle("low", row.leftAt !== null && row.leftAt - passed < 1000);
}

// moveFocus moves between the rows with the arrow keys.
function moveFocus(event, body) {
  const links = [...body.querySelectorAll("a")];
  const at = links.indexOf(document.activeElement);
  const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: links.length - 1 }[event.key];
  if (at < 0 || to === undefined) return;
  event.preventDefault();
  if (to < 0) document.getElementById("search").focus();
  else links[Math.min(to, links.length - 1)].focus();
}
