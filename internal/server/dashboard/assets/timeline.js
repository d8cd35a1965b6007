// The recent history of a lock: a strip that draws its holders over time, and a list of
// events, newest first.
import { KeyedList, el, setAttribute, setHidden, setText, svg } from "./dom.js";
import { clock, duration, millis, token } from "./format.js";
import { serviceClock } from "./live.js";

const stripWidth = 1000;
const stripHeight = 24;
const colors = 6;
const legendSize = 6;

const texts = {
  granted: (e, took) => [`was granted the lock${e.party?.token ? ` with token ${token(e.party.token)}` : ""}`, took && `after waiting ${took}`],
  waiting: () => ["joined the queue"],
  cancelled: (e, took) => ["left the queue", took && `after ${took}`],
  released: (e, took) => ["released the lock", took && `after ${took}`],
  expired: (e, took) => ["lost the lock: its lease expired", took && `after ${took}`],
  broken: (e, took) => ["lost the lock: an operator broke its lease", took && `after ${took}`],
  ended: (e, took) => ["no longer holds the lock; the cause is unknown", took && `after ${took}`],
  refused: (e) => [refusal(e)],
};

const labels = { granted: "granted", waiting: "waiting", cancelled: "left", released: "released", expired: "expired", broken: "broken", ended: "ended", refused: "refused" };

function refusal(e) {
  const gate = e.gate ? `the ${e.gate} gate` : "a gate";
  const by = e.party?.token ? `its token was ${e.party.token}` : "it had no token";
  const mark = e.mark ? `, the mark is ${e.mark}` : "";
  return `tried to write, and ${gate} refused it (${e.reason || "stale"}): ${by}${mark}`;
}

export class Timeline {
  constructor() {
    this.strip = svg("svg", { class: "strip", viewBox: `0 0 ${stripWidth} ${stripHeight}`, preserveAspectRatio: "none", role: "img", "aria-label": "Holders over time" });
    this.from = el("span", {});
    this.legend = el("ul", { class: "legend", "aria-hidden": "true" });
    this.figure = el("div", { class: "strip-box", hidden: true }, this.strip, el("p", { class: "axis", "aria-hidden": "true" }, this.from, el("span", {}, "now")), this.legend);
    this.list = el("ol", { class: "timeline" });
    this.note = el("p", { class: "muted small" });
    this.node = el("section", { class: "panel", "aria-labelledby": "timeline-title" }, el("h2", { id: "timeline-title" }, "Timeline"), this.figure, this.list, this.note);
    this.events = new KeyedList(this.list, newEvent, () => {});
  }

  // update shows the events of a history response. holders are those of now.
  update(history, holders, mode) {
    const events = history.events ?? [];
    const seen = new Map();
    this.events.render(events, (e) => { // equal events get different keys
      const key = JSON.stringify([e.time, e.type, e.party?.token ?? 0, e.party?.holder ?? "", e.mark ?? 0]);
      seen.set(key, (seen.get(key) ?? 0) + 1);
      return `${key}${seen.get(key)}`;
    });
    setText(this.note, [events.length === 0 ? "No events of this lock are recorded." : "", history.truncated ? "Older events were dropped." : "",
      history.since ? `Recorded since ${clock(history.since)}. A restart of the member or a restored snapshot begins a new record.` : "",
      mode === "efficiency" ? "Leases that programs take from the Redis nodes directly are not recorded." : ""].filter(Boolean).join(" "));
    // Older refusals may be known than the grants of that time.
    const oldest = (history.truncated && events.findLast((e) => e.type !== "refused")?.time) || history.since;
    this.draw(segments(events, holders), events.filter((e) => e.type === "refused"), oldest ? Date.parse(oldest) : null, mode === "efficiency");
  }

  // draw fills the strip. It runs once for each update of the history, not for each tick.
  // The holders of shared leases and permits have a lane each. The time before recorded, and all of it if not everything is recorded, is hatched.
  draw(parts, refused, recorded, incomplete) {
    setHidden(this.figure, parts.length === 0);
    if (parts.length === 0) return;
    const end = serviceClock.now();
    const start = Math.min(...parts.map((p) => p.start), ...refused.map((e) => Date.parse(e.time)), end - 1000);
    const x = (time) => Math.max(0, Math.min(stripWidth, ((time - start) / (end - start)) * stripWidth));
    const names = [...new Set(parts.map((p) => p.holder))];
    const colorOf = (name) => `color-${names.indexOf(name) % colors}`;
    const lanes = lanesOf(parts, end);
    const height = (stripHeight - 2) / lanes;
    const shapes = [];
    const unknown = incomplete ? end : recorded ?? start;
    if (unknown > start) shapes.push(hatching(), svg("rect", { x: 0, y: 0, width: x(unknown).toFixed(1), height: stripHeight, class: "unrecorded", fill: "url(#hatch)" }));
    shapes.push(...parts.map((p) => {
      const left = x(p.start);
      const shape = svg("rect", { x: left.toFixed(1), y: (1 + p.lane * height).toFixed(1), width: Math.max(2, x(p.end ?? end) - left).toFixed(1), height: Math.max(1, height - 1).toFixed(1), class: colorOf(p.holder) });
      const title = svg("title", {});
      title.textContent = `${p.holder}: ${duration((p.end ?? end) - p.start)}${p.end ? "" : ", holds it now"}`;
      shape.append(title);
      return shape;
    }));
    for (const e of refused) {
      const at = x(Date.parse(e.time)).toFixed(1);
      shapes.push(svg("line", { x1: at, x2: at, y1: 0, y2: stripHeight, class: "refused" }));
    }
    this.strip.replaceChildren(...shapes);
    setText(this.from, `${duration(end - start)} ago`);
    const legend = names.slice(0, legendSize).map((name) => el("li", {}, el("span", { class: `dot ${colorOf(name)}` }), el("span", { class: "who" }, name)));
    if (names.length > legendSize) legend.push(el("li", {}, `and ${names.length - legendSize} more`));
    if (unknown > start) legend.push(el("li", {}, el("span", { class: "dot hatched" }), "not recorded"));
    if (refused.length > 0) legend.push(el("li", {}, el("span", { class: "dot refused" }), "refused write"));
    this.legend.replaceChildren(...legend);
    setAttribute(this.strip, "aria-label", `Holders over the last ${duration(end - start)}: ${names.slice(0, legendSize).join(", ")}`);
  }
}

// maxLanes bounds the lanes of the strip; further holders share the last one.
const maxLanes = 6;

// lanesOf gives each part the first lane that is free when it starts, and returns the number of lanes. Exclusive holders
// have one lane: the recorded times of an end and of the next grant may overlap a little.
function lanesOf(parts, end) {
  const free = [];
  for (const p of parts) {
    const lane = p.shared ? free.findIndex((time) => time <= p.start) : 0;
    p.lane = Math.min(lane < 0 ? free.length : lane, maxLanes - 1);
    free[p.lane] = Math.max(free[p.lane] ?? 0, p.end ?? end);
  }
  return Math.max(1, free.length);
}

// hatching returns the pattern of the time of which nothing is recorded.
function hatching() {
  return svg("defs", {}, svg("pattern", { id: "hatch", width: 8, height: 8, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
    svg("path", { d: "M0 0V8", class: "hatch" })));
}

// isShared reports whether others may hold the lock at the same time.
function isShared(party) {
  return ["shared", "permit"].includes(party?.kind);
}

// segments derives who held the lock from when to when. The events are newest first; a
// holder without a recorded grant begins at the time that its duration gives. An event does not
// tell exclusive from shared leases, but the present holders do.
function segments(events, holders) {
  const parts = [];
  const open = new Map();
  const keyOf = (party) => party?.token || party?.holder || "";
  for (const e of events.toReversed()) {
    const time = Date.parse(e.time);
    const key = keyOf(e.party);
    const holder = e.party?.holder || "unnamed";
    if (e.type === "granted") {
      const part = { holder, start: time, end: null, shared: isShared(e.party) };
      open.set(key, part);
      parts.push(part);
    } else if (["released", "expired", "broken", "ended"].includes(e.type)) {
      const part = open.get(key);
      if (part) part.end = time;
      else if (e.duration) parts.push({ holder, start: time - millis(e.duration), end: time, shared: isShared(e.party) });
      open.delete(key);
    }
  }
  for (const party of holders) {
    const part = open.get(keyOf(party));
    if (part) part.shared = isShared(party);
    else if (party.since) parts.push({ holder: party.holder || "unnamed", start: Date.parse(party.since), end: null, shared: isShared(party) });
    open.delete(keyOf(party));
  }
  const shared = parts.some((part) => part.shared);
  for (const part of parts) part.shared = shared;
  const lost = new Set(open.values()); // grants whose end is not recorded
  return parts.filter((part) => !lost.has(part)).sort((a, b) => a.start - b.start);
}

function newEvent(e) {
  const took = e.duration ? duration(millis(e.duration)) : "";
  const parts = (texts[e.type] ?? (() => [e.type]))(e, took).filter(Boolean);
  const who = e.party?.holder || (e.type === "refused" ? "a writer" : "unnamed");
  const node = el("li", { class: `event ${labels[e.type] ? e.type : "other"}` },
    el("time", { datetime: e.time, title: e.time }, clock(e.time)),
    el("span", { class: "type" }, labels[e.type] ?? e.type),
    el("span", { class: "text" }, el("span", { class: "who" }, who), e.party?.user && e.party.user !== who ? ` (user ${e.party.user})` : "", ` ${parts.join(" ")}`));
  return { node };
}
