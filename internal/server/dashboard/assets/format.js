// Formats of durations, times and numbers.

const unitMillis = { h: 3600000, m: 60000, s: 1000, ms: 1, "µs": 1e-3, us: 1e-3, ns: 1e-6 };

// millis returns a duration of the API, such as "1m30.5s", in milliseconds, or null if
// it is empty.
export function millis(text) {
  if (!text) return null;
  let total = 0;
  for (const [, value, unit] of text.matchAll(/([\d.]+)(ms|µs|us|ns|h|m|s)/g)) total += Number(value) * unitMillis[unit];
  return text.startsWith("-") ? -total : total;
}

const two = (n) => String(n).padStart(2, "0");

// duration writes milliseconds with two units at most, such as "2 h 05 m". Below ten
// seconds it has one decimal.
export function duration(ms) {
  if (ms === null || ms === undefined) return "—";
  if (ms < 0) ms = 0;
  if (ms < 1000 && ms > 0) return ms < 1 ? "< 1 ms" : `${Math.floor(ms)} ms`;
  if (ms < 10000) return `${(Math.floor(ms / 100) / 10).toFixed(1)} s`;
  const s = Math.floor(ms / 1000);
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} m ${two(s % 60)} s`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${two(Math.floor((s % 3600) / 60))} m`;
  return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
}

// age writes how long something has lasted. Unlike duration it has no part of a second,
// so that a column of ages changes once a second.
export function age(ms) {
  return ms !== null && ms !== undefined && ms < 10000 ? `${Math.max(0, Math.floor(ms / 1000))} s` : duration(ms);
}

// countdown writes the time that is left, with one decimal below ten seconds.
export function countdown(ms) {
  if (ms === null || ms === undefined) return "—";
  if (ms <= 0) return "0.0 s";
  return ms < 10000 ? `${(Math.floor(ms / 100) / 10).toFixed(1)} s` : duration(ms);
}

const dayFormat = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", year: "numeric" });
const timeFormat = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const zoneFormat = new Intl.DateTimeFormat("en-GB", { timeZoneName: "short" });

// clock writes the time of day of an RFC 3339 time in the time zone of the browser, with
// the date if it is not today.
export function clock(text) {
  const time = new Date(text);
  if (Number.isNaN(time.getTime())) return "—";
  const day = dayFormat.format(time);
  return day === dayFormat.format(new Date()) ? timeFormat.format(time) : `${day}, ${timeFormat.format(time)}`;
}

// zone is the name of the browser's time zone.
export const zone = zoneFormat.formatToParts(new Date()).find((part) => part.type === "timeZoneName")?.value ?? "local";

const wholeFormat = new Intl.NumberFormat("en-US");

// count writes a number with separators.
export function count(n) {
  return wholeFormat.format(n ?? 0);
}

// rate writes a number per second.
export function rate(n) {
  if (!n) return "0";
  return n < 0.1 ? "< 0.1" : n < 100 ? n.toFixed(1) : count(Math.round(n));
}

// token writes a fencing token. It has no separators, so that it can be copied.
export function token(n) {
  return n ? String(n) : "—";
}

// shellQuote writes a text as one word of a shell command.
export function shellQuote(text) {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

// shortMessage writes an error of the service in one line. An error about Redis nodes has
// the error of each node, which the view of the cluster shows.
export function shortMessage({ code, message = "" }) {
  if (!concernsRedis({ code, message })) return message.split("\n")[0];
  const votes = message.match(/\d+ of \d+ Redis nodes [^;:\n]*/)?.[0];
  return `Locks in efficiency mode are not available: ${votes ?? "the Redis nodes do not answer"}.`;
}

// concernsRedis reports whether a call failed because of the Redis nodes.
export function concernsRedis({ code, message = "" }) {
  return ["unavailable", "uncertain"].includes(code) && message.includes("Redis");
}
