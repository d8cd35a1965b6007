// The page: routes, header, connection state and sign-in. Each view is a module whose
// open function fills the main element and returns handlers of events and ticks.
import { el, setAttribute, setHidden, setText } from "./dom.js";
import { concernsRedis, shortMessage } from "./format.js";
import { Live, me, secret, serviceClock } from "./live.js";
import { openSignIn } from "./signin.js";
import { openLocks } from "./locks.js";
import { openLock } from "./lock.js";
import { openCluster } from "./cluster.js";
import { openPolicies } from "./policies.js";

const reducedMotion = matchMedia("(prefers-reduced-motion: reduce)");
const part = (id) => document.getElementById(id);
const main = part("main");

const state = {
  caller: null, // the answer of /ui/me
  view: null, // the handlers of the open view
  live: null, // the stream of the open view
  summary: null, // the last summary event
  failure: null, // the last failure event, until data arrives
  addresses: [], // the API addresses of the members, if the caller has seen them
  disconnected: null, // why there is no stream, and until when
  searches: false, // the next view gets the focus in its search field
};

// route splits the fragment of the URL into the path and the parameters of a view.
function route() {
  const [path, query = ""] = location.hash.slice(1).split("?");
  const [, page = "", name = ""] = path.split("/");
  return { page, name, query: new URLSearchParams(query) };
}

function decoded(name) {
  try {
    return decodeURIComponent(name);
  } catch {
    return name;
  }
}

const views = {
  "": (page) => openLocks(main, page),
  lock: (page, name) => openLock(main, page, decoded(name)),
  cluster: (page) => openCluster(main, page),
  policies: (page) => openPolicies(main, page),
};

// show opens the view of the URL.
function show(event) {
  closeView();
  const { page, name, query } = route();
  const open = views[page];
  setText(part("connection"), "connecting");
  for (const link of part("nav").children) {
    const current = link.dataset.page === (page === "" || page === "lock" ? "locks" : page);
    setAttribute(link, "aria-current", current ? "page" : null);
  }
  if (!open) {
    document.title = "No such page · leased";
    setText(part("connection"), "no such page");
    part("connection").className = "pill warn";
    main.replaceChildren(el("section", { class: "empty panel" }, el("h1", {}, "There is no such page"),
      el("p", {}, "The dashboard has no page ", el("code", {}, location.hash), ". "), el("p", {}, el("a", { href: "#/" }, "Show the locks"))));
    return;
  }
  state.view = open({ query, watch, replaceQuery, caller: state.caller }, name);
  if (event) {
    window.scrollTo(0, 0);
    // A screen reader announces the new page.
    (state.searches ? part("search") : main).focus({ preventScroll: true });
    state.searches = false;
  }
}

function closeView() {
  state.view?.close?.();
  state.live?.close();
  state.view = state.live = state.failure = state.disconnected = null;
}

// watch starts the stream of a view and ends the one before it.
function watch(parameters) {
  state.live?.close();
  const live = new Live(new URLSearchParams(parameters), (type, data) => state.live === live && receive(type, data), (to, detail) => {
    if (state.live === live) connection(to, detail);
  });
  state.live = live;
}

// replaceQuery keeps the parameters of a view in the URL, without a new entry in the
// history.
function replaceQuery(query) {
  const text = query.toString();
  history.replaceState(null, "", (location.hash.split("?")[0] || "#/") + (text ? `?${text}` : ""));
}

function receive(type, data) {
  if (type === "summary") {
    state.summary = data;
    serviceClock.set(data.time);
  } else if (type === "failure") {
    state.failure = data;
    state.view?.fail?.(data);
  } else {
    state.failure = null;
    if (type === "cluster") state.addresses = addressesOf(data.cluster);
    state.view?.receive(type, data, performance.now());
  }
  status();
}

function connection(to, detail) {
  if (to === "signed-out") {
    signOut(detail.error);
    return;
  }
  state.disconnected = to === "live" ? null : { ...detail, until: performance.now() + detail.delay };
  status();
}

// status writes the header and the banner.
function status() {
  const { summary, disconnected, failure } = state;
  const pill = part("connection");
  setAttribute(document.body, "data-connection", disconnected ? "lost" : "live");
  if (disconnected) {
    setText(pill, "reconnecting");
    pill.className = "pill bad";
  } else if (failure?.status === 403) {
    setText(pill, "no access");
    pill.className = "pill warn";
  } else if (summary) {
    const serving = summary.health === "serving";
    setText(pill, summary.stale ? "live, no leader" : serving ? "live" : "not serving");
    pill.className = summary.stale || !serving ? "pill warn" : "pill good";
  }
  setText(part("member"), memberText());
  showBanner(...banner());
}

// showBanner writes the banner if it has changed, so that a screen reader reads it once.
function showBanner(kind, text, links = []) {
  const node = part("banner");
  const key = JSON.stringify([text, links]);
  node.className = `banner ${kind}`;
  setHidden(node, text === "");
  if (node.dataset.key === key) return;
  node.dataset.key = key;
  node.replaceChildren(text, ...links.flatMap(([label, href]) => [" ", el("a", { href }, label)]));
}

// addressesOf returns the API addresses in the state of the cluster.
function addressesOf(cluster) {
  const members = cluster?.members ?? [];
  const all = members.flatMap((m) => [m.status?.apiAddress, ...(m.status?.members ?? []).map((other) => other.apiAddress)]);
  return [...new Set(all)].filter((address) => /^[\w.:[\]-]+$/.test(address ?? "")).sort();
}

// memberText says which member serves the page, or when the next attempt is due. It is no
// live region, so that a screen reader does not read the seconds.
function memberText() {
  const { summary, disconnected } = state;
  if (disconnected?.failures > 1) {
    const left = Math.max(0, Math.ceil((disconnected.until - performance.now()) / 1000));
    return left ? `next attempt in ${left} s` : "trying now";
  }
  if (!summary) return "";
  if (summary.leader && summary.leader !== summary.member) return `served by ${summary.member}, leader ${summary.leader}`;
  return `served by ${summary.member}${summary.leader ? ", the leader" : ""}`;
}

// banner returns the kind, the text and the links of the banner.
function banner() {
  const { summary, disconnected, failure } = state;
  if (disconnected?.failures > 1) {
    const why = disconnected.error?.code ? ` ${disconnected.error.message}.` : "";
    const others = state.addresses.filter((address) => address !== location.host);
    const elsewhere = others.length > 0 ? "Other members:" : "If the service has other members, open the address of one of them.";
    return ["bad", `The connection to the service is lost.${why} The page shows the last state and tries again. ${elsewhere}`,
      others.map((address) => [address, `${location.protocol}//${address}/${location.hash}`])];
  }
  if (summary?.stale) return ["warn", `No leader: showing the state of member ${summary.member}, which may be old.`];
  if (failure && concernsRedis(failure)) return ["bad", shortMessage(failure), [["Show the Redis nodes", "#/cluster"]]];
  if (failure) return ["bad", `${shortMessage(failure)}${failure.hint ? `. ${failure.hint}` : ""}`];
  if (summary && summary.health !== "serving") return ["warn", `Member ${summary.member} is not serving: ${summary.reason || "the reason is unknown"}`];
  return ["", ""];
}

// signOut forgets the secret and asks for one. error says why the service rejected it.
function signOut(error) {
  closeView();
  secret.clear();
  state.caller = state.summary = null;
  state.addresses = [];
  setHidden(part("account"), true);
  setHidden(part("banner"), true);
  setText(part("member"), "");
  setText(part("connection"), "signed out");
  part("connection").className = "pill";
  openSignIn(main, error, signIn);
}

function signIn(caller) {
  state.caller = caller;
  setText(part("user"), caller.user ?? "");
  setHidden(part("account"), !caller.users);
  setHidden(part("sign-out"), secret.get() === "");
  show();
}

// start asks who the caller is, and repeats that until the service answers.
async function start(delay) {
  try {
    signIn(await me(secret.get()));
  } catch (error) {
    if (error.rejectsSecret) {
      signOut(secret.get() ? error : null);
      return;
    }
    connection("reconnecting", { error, delay, failures: 2 });
    setTimeout(() => start(Math.min(delay * 2, 10000)), delay);
  }
}

// tick updates what counts up or down between two events.
let last = 0;
setInterval(() => {
  const now = performance.now();
  if (document.hidden || now - last < (reducedMotion.matches ? 1000 : 100)) return;
  last = now;
  state.view?.tick?.(now);
  if (state.disconnected) status();
}, 100);

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, textarea, dialog")) return;
  if (event.key === "/" && state.caller) {
    event.preventDefault();
    if (route().page === "") {
      part("search")?.focus();
    } else {
      state.searches = true;
      location.hash = "#/";
    }
  }
});
window.addEventListener("hashchange", (event) => state.caller && show(event));
window.addEventListener("online", () => state.live?.reconnect());
part("skip").addEventListener("click", () => main.focus());
part("sign-out").addEventListener("click", () => signOut(null));
start(500);
