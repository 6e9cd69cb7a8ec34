// The live parts of every page: updates from one stream, ages that tick, stars, search and keyboard.

const body = document.body.dataset;
const byId = (id) => document.getElementById(id);
const TICK_MS = 250;
const LOST_MS = 6000;
// A browser delays the timers of a hidden tab by up to a minute.
const HIDDEN_LOST_MS = 150000;
const HIDDEN_ASK_MS = 15000;
const STREAMS = 4;
const ASK_MS = 2000;
const LATEST_START_MS = 1000;
// Pause after a letter in the search field: the next one would make the request useless.
const SEARCH_MS = 150;

// -- time: the console's monotonic clock, continued with performance.now(); the browser's wall clock is not used
let offset = Number(body.now) - performance.now() / 1000;
let wallOffset = Number(body.wall) * 1000 - performance.now();
let lastResponseAt = performance.now();
let pausedAt = null;

const now = () => (pausedAt ?? performance.now()) / 1000 + offset;

function lasting(seconds) {
  const whole = Math.floor(Math.abs(seconds));
  for (const [unit, name, smaller, smallerName] of [[86400, "d", 3600, "h"], [3600, "h", 60, "m"], [60, "m", 1, "s"]]) {
    if (whole >= unit) return `${Math.floor(whole / unit)} ${name} ${Math.floor((whole % unit) / smaller)} ${smallerName}`;
  }
  return `${Math.abs(seconds).toFixed(1)} s`;
}

function ageText({ lastSeen, evicted }, moment) {
  const words = evicted > moment ? body.textAlive : body.textDue;
  return words.replace("{ago}", lasting(Math.max(0, moment - lastSeen))).replace("{left}", lasting(evicted - moment));
}

function showAge(element, moment) {
  const lastSeen = Number(element.dataset.lastSeen), evicted = Number(element.dataset.evicted);
  const share = Math.min(1, Math.max(0, (evicted - moment) / (evicted - lastSeen)));
  const look = share < body.dyingBelow ? "dying" : share < body.lateBelow ? "late" : "in_time";
  if (!element.classList.contains(look)) {
    element.classList.remove("in_time", "late", "dying");
    element.classList.add(look);
  }
  const label = element.lastElementChild;
  // A cell of the heat map has its colour only.
  if (!label) return;
  const left = element.querySelector(".left"), text = ageText({ lastSeen, evicted }, moment);
  left.setAttribute("width", `${(share * 100).toFixed(1)}%`);
  if (label === left) element.setAttribute("aria-label", text);
  else if (label.textContent !== text) label.textContent = text;
}

// Hovering over a cell of the heat map names the broker and the server, with the age at this moment.
document.addEventListener("pointerover", (event) => {
  // A bar in the list of brokers has its text for screen readers only. An SVG shows no `title`, so the cell gets one.
  const bar = event.target.closest(".compact .age");
  if (bar) bar.parentElement.title = bar.getAttribute("aria-label");
  const cell = event.target.closest(".heat .cell");
  if (!cell) return;
  const instance = cell.parentElement, at = [...instance.children].indexOf(cell);
  const server = document.querySelectorAll("#heat ol li > bdi")[at].textContent;
  cell.dataset.says ??= cell.title;
  const says = cell.dataset.lastSeen ? ageText(cell.dataset, now()) : cell.dataset.says;
  cell.title = `${cell.closest("a").textContent}/${instance.dataset.role}, ${server}: ${says}`;
});

let moments;

// Replaces times in UTC by local times; the time in UTC becomes the title.
function showTimes() {
  moments ??= new Intl.DateTimeFormat(document.documentElement.lang, { dateStyle: "short", timeStyle: "medium" });
  for (const element of document.querySelectorAll("time[data-ms]:not([title])")) {
    const date = new Date(Number(element.dataset.ms));
    element.title = element.textContent;
    // A server may send a number that is no valid date.
    if (!Number.isNaN(date.getTime())) element.textContent = moments.format(date);
  }
}

let isLost = false, hasFailed = false;

// Without a connection to the console, neither the page nor the title and icon of its tab look healthy.
function showLost() {
  const age = performance.now() - lastResponseAt, was = isLost;
  isLost = pausedAt === null && (document.hidden ? hasFailed || age > HIDDEN_LOST_MS : age > LOST_MS);
  if (was === isLost) return;
  document.body.classList.toggle("lost", isLost);
  const trouble = byId("trouble");
  trouble.textContent = isLost ? body.textLost : "";
  trouble.hidden = !isLost;
  showVerdict();
}

function tick() {
  showLost();
  if (document.hidden) return;
  const moment = now();
  for (const element of document.querySelectorAll("[data-last-seen]")) showAge(element, moment);
  for (const element of document.querySelectorAll("[data-since]")) {
    element.textContent = lasting(Math.max(0, moment - Number(element.dataset.since)));
  }
}

function showAsOf() {
  const at = new Date(wallOffset + lastResponseAt);
  byId("wall").textContent = at.toLocaleTimeString(document.documentElement.lang);
  byId("wall").dateTime = at.toISOString();
}

// -- the stream
let seen = body.seen;
let stream = null;
let isConnecting = false;
let timer = 0;

const parser = document.createElement("template");

// Makes an element equal to a new one. Nodes that stay keep their layout, scroll position and focus: a patch of a
// thousand brokers changes a few attributes of each.
function update(old, fresh) {
  if (old.nodeName !== fresh.nodeName || old.childNodes.length !== fresh.childNodes.length) {
    old.replaceWith(fresh);
  } else if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.data !== fresh.data) old.data = fresh.data;
  } else {
    for (const name of old.getAttributeNames()) if (!fresh.hasAttribute(name)) old.removeAttribute(name);
    for (const name of fresh.getAttributeNames()) {
      const value = fresh.getAttribute(name);
      if (old.getAttribute(name) !== value) old.setAttribute(name, value);
    }
    let node = old.firstChild, freshNode = fresh.firstChild;
    while (node) {
      // An update may move the new node into the page, away from its siblings.
      const next = node.nextSibling, freshNext = freshNode.nextSibling;
      update(node, freshNode);
      node = next;
      freshNode = freshNext;
    }
  }
}

function replace(id, element) {
  const old = byId(id);
  if (!old) return;
  const focused = old.contains(document.activeElement) ? document.activeElement : null, href = focused?.href;
  update(old, element);
  // Keep the keyboard focus on the same link, which may be in another row now.
  if (!focused || (focused.isConnected && focused.href === href)) return;
  if (focused.id) byId(focused.id)?.focus();
  else if (href) [...byId(id).querySelectorAll("a")].find((link) => link.href === href)?.focus();
}

// The verdict of the page is shown in the tab, too: in its title and by its icon.
const pageTitle = document.title;

function showVerdict() {
  const verdict = byId("verdict"), isPaused = pausedAt !== null;
  // A paused page may be out of date, so that its title has the time of its last update.
  const element = isPaused ? byId("as-of") : verdict;
  const text = element.textContent.trim().replace(/\s+/g, " ");
  const says = isLost ? body.textLost : isPaused || !verdict.classList.contains("good") ? text : "";
  byId("icon").href = isLost || isPaused ? verdict.dataset.unknownIcon : verdict.dataset.icon;
  document.title = says ? `${says} · ${pageTitle}` : pageTitle;
}

function take({ id, now, wall, parts }) {
  lastResponseAt = performance.now();
  hasFailed = false;
  offset = now - lastResponseAt / 1000;
  wallOffset = wall * 1000 - lastResponseAt;
  seen = id;
  // One call parses a thousand rows in half the time of a call for each. In a template, a row needs no table around it.
  parser.innerHTML = parts.map(([, html]) => `<template>${html}</template>`).join("");
  [...parser.content.children].forEach((part, at) => replace(parts[at][0], part.content.firstElementChild));
  showTimes();
  showStars();
  showVerdict();
  showAsOf();
  tick();
}

// A browser opens at most six connections to one host. With six streams open no page would load any more, so at most
// STREAMS visible windows have a stream, and further windows poll every ASK_MS.
function takeSlot(number = 0) {
  return new Promise((taken) => {
    if (!navigator.locks) taken(() => {});
    else navigator.locks.request(`stream ${number}`, { ifAvailable: true }, (lock) => {
      if (lock) return new Promise((release) => taken(release));
      taken(number + 1 < STREAMS ? takeSlot(number + 1) : null);
    });
  });
}

const isWanted = () => pausedAt === null && !document.hidden;

async function connect() {
  if (isConnecting || stream || !isWanted()) return;
  isConnecting = true;
  const release = await takeSlot();
  isConnecting = false;
  if (release && isWanted()) listen(release);
  else if (release) release();
  else ask();
}

const address = (query) => `/live?${new URLSearchParams({ of: body.of, since: seen, ...query })}`;

async function ask() {
  if (pausedAt !== null) return;
  const answer = await fetch(address({ once: "1" })).catch(() => null);
  // The session has ended: reloading redirects to the login page.
  if (answer?.redirected || answer?.status === 401) location.reload();
  else if (answer?.ok && pausedAt === null) take(await answer.json());
  else hasFailed = !answer?.ok;
  tick();
  askLater();
}

function askLater() {
  clearTimeout(timer);
  timer = document.hidden ? setTimeout(ask, HIDDEN_ASK_MS) : setTimeout(connect, ASK_MS);
}

function listen(release) {
  stream = new EventSource(address({}));
  stream.release = release;
  stream.onmessage = (message) => take(JSON.parse(message.data));
  stream.onerror = () => {
    // A closed stream was refused; the browser does not reconnect by itself.
    if (stream?.readyState !== EventSource.CLOSED) return;
    disconnect();
    ask();
  };
}

function disconnect() {
  stream?.close();
  stream?.release();
  stream = null;
}

// A hidden tab closes its stream, and polls rarely, for its title and icon; its page is updated at once when it is shown.
document.addEventListener("visibilitychange", () => {
  if (document.hidden) {
    disconnect();
    askLater();
  } else {
    clearTimeout(timer);
    if (!isLost) lastResponseAt = performance.now();
    connect();
  }
});

function togglePause() {
  pausedAt = pausedAt === null ? performance.now() : null;
  tick();
  const button = byId("pause");
  button.setAttribute("aria-pressed", String(pausedAt !== null));
  button.textContent = pausedAt === null ? body.textPause : body.textResume;
  document.body.classList.toggle("paused", pausedAt !== null);
  showVerdict();
  if (pausedAt !== null) disconnect();
  else {
    lastResponseAt = performance.now();
    connect();
  }
}

// -- stars: kept in a cookie, since the server sorts the lists by them
const starred = () => document.cookie.match(/(?:^|; )stars=([^;]*)/)?.[1].split(",").filter(Boolean) ?? [];

function showStars() {
  const stars = starred();
  for (const button of document.querySelectorAll("[data-star]")) {
    button.setAttribute("aria-pressed", String(stars.includes(encodeURIComponent(button.dataset.star))));
  }
}

document.addEventListener("click", (event) => {
  const name = event.target.closest("[data-star]")?.dataset.star;
  if (name === undefined) return;
  const star = encodeURIComponent(name), old = starred();
  const stars = old.includes(star) ? old.filter((one) => one !== star) : [...old, star];
  // A cookie holds about 4,096 bytes; drop the oldest stars.
  while (stars.join().length > 3500) stars.shift();
  document.cookie = `stars=${stars.join()}; path=/; max-age=31536000; samesite=lax`;
  showStars();
  // Reconnect, so that an open list is sent with the new stars.
  disconnect();
  connect();
});

// -- search
const search = byId("search"), found = byId("found");
// The text of the results that are shown.
let foundText = "", searchTimer = 0;

async function look() {
  const text = search.value.trim();
  let html = "";
  if (text) {
    const answer = await fetch(`/search?${new URLSearchParams({ q: text, part: "results" })}`).catch(() => null);
    if (answer?.status === 401) location.reload();
    if (answer?.ok) html = await answer.text();
    // A later letter has its own request.
    if (text !== search.value.trim()) return;
  }
  found.innerHTML = html;
  foundText = text;
  // The search page has an element with the same id.
  found.firstElementChild?.removeAttribute("id");
}

search.addEventListener("input", () => {
  clearTimeout(searchTimer);
  searchTimer = setTimeout(look, SEARCH_MS);
});
search.form.addEventListener("keydown", (event) => {
  const links = [...found.querySelectorAll("a")];
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (step && links.length) {
    event.preventDefault();
    const at = links.indexOf(document.activeElement) + step;
    (at < 0 ? search : links[Math.min(at, links.length - 1)]).focus();
  } else if (event.key === "Enter" && document.activeElement === search && links.length && foundText === search.value.trim()) {
    event.preventDefault();
    links[0].click();
  }
});

// -- keyboard
let wasG = false;

document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && search.form.contains(document.activeElement)) {
    search.value = "";
    found.replaceChildren();
    search.blur();
    document.activeElement.blur();
    return;
  }
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select, [contenteditable]")) return;
  const goes = wasG;
  wasG = event.key === "g";
  if (event.key === "/") {
    event.preventDefault();
    search.focus();
  } else if (event.key === "p") togglePause();
  else if (event.key === "?") document.querySelector("footer").scrollIntoView();
  else if (goes) document.querySelector(`footer [data-key="${CSS.escape(event.key)}"]`)?.click();
});

for (const button of document.querySelectorAll("[data-copies]")) {
  button.addEventListener("click", async () => {
    const text = byId(button.dataset.copies);
    // Over plain HTTP the clipboard API is missing: select the text, so that the user can copy it.
    if (!navigator.clipboard) getSelection().selectAllChildren(text);
    else {
      await navigator.clipboard.writeText(text.textContent);
      button.textContent = button.dataset.copied;
    }
  });
}

byId("pause").addEventListener("click", togglePause);

let isStarted = false;

function start() {
  if (isStarted) return;
  isStarted = true;
  showTimes();
  showStars();
  showAsOf();
  showVerdict();
  tick();
  setInterval(tick, TICK_MS);
  if (document.hidden) askLater();
  else connect();
}

// The script starts after the first paint. A hidden tab has no first paint, and some browsers do not report theirs, or
// have no observer.
setTimeout(start, document.hidden ? 0 : LATEST_START_MS);
new PerformanceObserver((entries) => {
  if (entries.getEntriesByName("first-contentful-paint").length) start();
}).observe({ type: "paint", buffered: true });
