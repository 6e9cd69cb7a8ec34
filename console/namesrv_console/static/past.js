// Pages about the past: reload until the logs are read, zoom by dragging, and replay when a slider moves.

const past = () => document.getElementById("past");
const RETRY_MS = 2000;
let latest = 0;

async function swap(url, address) {
  const mine = ++latest;
  past()?.setAttribute("aria-busy", "true");
  const html = await fetch(url, { headers: { accept: "text/html" } }).then((answer) => answer.text()).catch(() => null);
  if (mine !== latest) return;
  if (html === null) {
    // No connection to the console.
    setTimeout(() => mine === latest && swap(url, address), RETRY_MS);
    return;
  }
  const fresh = new DOMParser().parseFromString(html, "text/html").getElementById("past");
  if (!fresh) {
    location.assign(address);
    return;
  }
  past().replaceWith(fresh);
  history.replaceState(null, "", address);
  again();
}

// While the logs are being read, the page has an element with the address to request again.
function again() {
  const waiting = document.querySelector("[data-again]");
  if (!waiting) return;
  const url = new URL(waiting.dataset.again, location.href), address = new URL(url);
  address.searchParams.delete("wait");
  swap(url, address);
}

// Sliders: update the number while one moves, and request the replay when it is released.
document.addEventListener("input", (event) => {
  if (event.target.type === "range") event.target.closest("label").querySelector("output").value = event.target.value;
});
document.addEventListener("change", (event) => {
  const form = event.target.closest("form[data-live]");
  if (!form) return;
  const address = new URL(form.action);
  address.search = new URLSearchParams(new FormData(form));
  const url = new URL(address);
  url.searchParams.set("wait", "1");
  swap(url, address);
});

// Dragging over a timeline row zooms in, with a finger, too.
let drag = null;

const share = (event) => {
  const box = drag.row.getBoundingClientRect();
  return Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
};

document.addEventListener("pointerdown", (event) => {
  const row = event.target.closest(".timeline-row, .axis");
  if (!row || event.button !== 0) return;
  // A finger that moves up or down scrolls the page, and the browser cancels the drag.
  if (event.pointerType !== "touch") event.preventDefault();
  drag = { row, timeline: row.closest("[data-zoom]"), shade: document.createElement("div") };
  drag.began = drag.ended = share(event);
  drag.shade.className = "shade";
  drag.timeline.append(drag.shade);
});
document.addEventListener("pointermove", (event) => {
  if (!drag) return;
  drag.ended = share(event);
  const box = drag.row.getBoundingClientRect(), left = box.left - drag.timeline.getBoundingClientRect().left;
  drag.shade.style.left = `${left + Math.min(drag.began, drag.ended) * box.width}px`;
  drag.shade.style.width = `${Math.abs(drag.ended - drag.began) * box.width}px`;
});
document.addEventListener("pointerup", (event) => {
  if (!drag) return;
  const { timeline, shade, began } = drag, ended = share(event);
  shade.remove();
  drag = null;
  const from = Number(timeline.dataset.from), length = Number(timeline.dataset.to) - from;
  const [first, last] = [began, ended].sort((a, b) => a - b).map((part) => Math.round(from + part * length));
  // Too short for a drag: a click.
  if (Math.abs(ended - began) < 0.004 || last - first < 1000) return;
  const address = new URL(timeline.dataset.zoom, location.href);
  const written = (ms) => new Date(ms).toISOString().replace(".000Z", "").replace("Z", "");
  address.searchParams.set("from", written(first));
  address.searchParams.set("to", written(last));
  location.assign(address);
});
function cancelDrag() {
  drag?.shade.remove();
  drag = null;
}

// With the keyboard focus on the rows, arrows move the span, and + and - zoom.
const MOVES = { ArrowLeft: "earlier", ArrowRight: "later", "+": "closer", "=": "closer", "-": "wider" };

document.addEventListener("pointercancel", cancelDrag);
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") cancelDrag();
  const name = MOVES[event.key];
  if (!name || event.ctrlKey || event.metaKey || event.altKey || !event.target.matches("[data-zoom]")) return;
  event.preventDefault();
  document.getElementById(name).click();
});

again();
