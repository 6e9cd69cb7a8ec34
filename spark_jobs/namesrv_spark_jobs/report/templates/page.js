// What the page can do in a browser: charts that zoom and say what is under the pointer, tables that sort and filter.
// The part of the address after # keeps what is shown. Without this script the page reads and prints all the same.

// Vega would warn of layers without rows, such as the mark before it is set
const ERRORS = 1;
const specs = JSON.parse(document.getElementById("charts").textContent);
const figures = new Map();
const tables = new Map();
const details = new Map();
let mark = null;
let restoring = false;

const slug = (text) => text.trim().toLowerCase().replace(/[^\p{L}\p{N}]+/gu, "-");
const make = (name, attributes, ...children) => {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
};

// --- the address

let writing = 0;
function remember() {
  if (restoring) return;
  clearTimeout(writing);
  writing = setTimeout(() => {
    const state = new URLSearchParams();
    for (const [name, one] of figures) if (one.zoom) state.set(`zoom.${name}`, one.zoom.map((x) => +x.toPrecision(15)).join());
    for (const [name, one] of tables) {
      if (one.sorted) state.set(`sort.${name}`, `${one.sorted.column}${one.sorted.descending ? "-" : "+"}`);
      if (one.filter?.value) state.set(`filter.${name}`, one.filter.value);
    }
    for (const [name, one] of details) if (one.open !== one.wasOpen) state.set(`open.${name}`, +one.open);
    if (mark) state.set("mark", `${mark.from},${mark.where}`);
    // a chapter that the address names stays there until something else is to be kept
    if (!state.size && !location.hash.includes("=")) return;
    history.replaceState(null, "", `${location.pathname}${location.search}${state.size ? `#${state}` : ""}`);
  }, 150);
}

function recall() {
  const state = new URLSearchParams(location.hash.slice(1));
  if (!location.hash.includes("=")) return;
  restoring = true;
  for (const [name, one] of details) one.open = state.has(`open.${name}`) ? state.get(`open.${name}`) === "1" : one.wasOpen;
  for (const [name, one] of tables) {
    const [, column, way] = /^(\d+)([+-])$/.exec(state.get(`sort.${name}`) ?? "") ?? [];
    if (column !== undefined) one.sort(+column, way === "-");
    if (one.filter) one.find(state.get(`filter.${name}`) ?? "");
  }
  for (const [name, one] of figures) {
    const zoom = state.get(`zoom.${name}`)?.split(",").map(Number) ?? null;
    one.show(zoom && [2, 4].includes(zoom.length) && zoom.every(Number.isFinite) ? zoom : null);
  }
  const [, from, where] = /^(\d+),(.*)$/s.exec(state.get("mark") ?? "") ?? [];
  point({ where, from: +from }, false);
  restoring = false;
}

// --- charts

const tip = document.body.appendChild(make("div", { class: "tip", role: "tooltip", hidden: "" }));
function sayUnderPointer(_handler, event, _item, value) {
  tip.hidden = value == null || value === "";
  if (tip.hidden) return;
  tip.textContent = value;
  const { clientX: x, clientY: y } = event;
  tip.style.left = `${Math.max(4, Math.min(x + 14, innerWidth - tip.offsetWidth - 8))}px`;
  tip.style.top = `${y + tip.offsetHeight + 24 > innerHeight ? y - tip.offsetHeight - 12 : y + 18}px`;
}

class Figure {
  constructor(element) {
    this.element = element;
    this.spec = specs[element.id];
    // where the scatter zooms both ways, the others zoom along their axis
    this.ways = element.dataset.zoom === "xy" ? ["x", "y"] : ["x"];
    this.zoom = null;
    this.live = make("div", { class: "live", tabindex: "0", role: "application", "aria-label": `${element.dataset.title}; plus and minus zoom, arrows move, 0 shows everything` });
    element.prepend(this.live);
    this.addControls();
    // a figure in what is folded has no width, and is drawn when it has one
    new ResizeObserver(() => this.fit()).observe(element);
  }

  async fit() {
    const width = Math.floor(this.element.clientWidth);
    if (!width || width === this.width) return;
    this.width = width;
    const most = width < 500 ? 20 : 37;
    if (this.view) {
      if (this.has("most")) this.view.signal("most", most);
      await this.view.width(width).runAsync();
    } else if (!this.begun) {
      this.begun = true;
      const spec = { ...this.spec, width, params: this.spec.params.map((one) => (one.name === "most" ? { ...one, value: most } : one)) };
      // no eval: `ast` takes Vega's interpreter
      const options = { mode: "vega-lite", ast: true, actions: false, renderer: "svg", defaultStyle: false, tooltip: sayUnderPointer, logLevel: ERRORS };
      this.view = (await vegaEmbed(this.live.appendChild(make("div", {})), spec, options)).view;
      this.element.classList.add("drawn");
      if (this.width !== width) await this.view.width(this.width).runAsync();
      await this.update();
    }
  }

  has(name) {
    return this.spec.params.some((one) => one.name === name);
  }

  async update() {
    if (!this.view) return;
    this.view.signal("zoom", this.zoom);
    if (this.has("mark")) this.view.signal("mark", mark);
    await this.view.runAsync();
    this.element.dataset.shown = JSON.stringify(this.zoom);
  }

  show(zoom) {
    this.zoom = zoom;
    if (this.reset) this.reset.disabled = zoom === null;
    this.update();
    remember();
  }

  // what of an axis is seen: [from, to] in pixels of the whole plot
  range(way) {
    return way === "x" ? [0, this.view.signal("width")] : [this.view.signal("height"), 0];
  }

  // zoom to these places of the plot
  showPlaces(x, y) {
    const values = (way, places) => {
      const scale = this.view.scale(way);
      const found = (places ?? this.range(way)).map((place) => +scale.invert(place));
      return found.every(Number.isFinite) && found[0] < found[1] ? found : null;
    };
    const found = [values("x", x), ...(this.ways.includes("y") ? [values("y", y)] : [])];
    if (!found.includes(null)) this.show(found.flat());
  }

  // bigger or smaller by a factor, around a share of the way, moved by a share of it
  change(factor, { x = 0.5, y = 0.5, move = 0 } = {}) {
    if (!this.view) return;
    const at = (way, share) => {
      const [from, to] = this.range(way);
      const places = [share - share * factor, share + (1 - share) * factor];
      return places.map((place) => from + (place + (way === "x" ? move : 0)) * (to - from));
    };
    this.showPlaces(at("x", x), at("y", y));
  }

  addControls() {
    const button = (text, says, does) => {
      const made = make("button", { type: "button", title: says, "aria-label": says }, text);
      made.addEventListener("click", does);
      return made;
    };
    this.reset = button("whole", "Show everything", () => this.show(null));
    this.reset.disabled = true;
    this.element.prepend(
      make(
        "div",
        { class: "controls" },
        button("+", "Zoom in", () => this.change(0.5)),
        button("\u2212", "Zoom out", () => this.change(2)),
        this.reset,
      ),
    );
    const keys = {
      "+": () => this.change(0.5),
      "=": () => this.change(0.5),
      "-": () => this.change(2),
      0: () => this.show(null),
      ArrowLeft: () => this.change(1, { move: -0.25 }),
      ArrowRight: () => this.change(1, { move: 0.25 }),
    };
    this.live.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || !keys[event.key]) return;
      event.preventDefault();
      keys[event.key]();
    });
    this.live.addEventListener("dblclick", () => this.show(null));
    this.live.addEventListener(
      "wheel",
      (event) => {
        // a wheel alone scrolls the page
        if (!(event.ctrlKey || event.metaKey) || !this.view) return;
        event.preventDefault();
        const [x, y] = this.place(event);
        this.change(event.deltaY < 0 ? 0.8 : 1.25, { x: x / this.view.signal("width"), y: 1 - y / this.view.signal("height") });
      },
      { passive: false },
    );
    this.live.addEventListener("pointerdown", (event) => this.drag(event));
  }

  place(event) {
    const box = this.live.getBoundingClientRect();
    const [left, top] = this.view.origin();
    return [event.clientX - box.left - left, event.clientY - box.top - top];
  }

  // drawing a frame zooms to it
  drag(begun) {
    if (begun.button !== 0 || !this.view) return;
    const start = this.place(begun);
    const [left, top] = this.view.origin();
    const size = [this.view.signal("width"), this.view.signal("height")];
    const frame = make("div", { class: "frame" });
    const span = (event, axis) => {
      if (axis === 1 && !this.ways.includes("y")) return [0, size[1]];
      const ends = [start[axis], this.place(event)[axis]].map((place) => Math.max(0, Math.min(place, size[axis])));
      return ends.sort((one, other) => one - other);
    };
    const moved = (event) => {
      const [x, y] = [span(event, 0), span(event, 1)];
      Object.assign(frame.style, { left: `${left + x[0]}px`, width: `${x[1] - x[0]}px`, top: `${top + y[0]}px`, height: `${y[1] - y[0]}px` });
      if (!frame.isConnected) this.live.append(frame);
      tip.hidden = true;
    };
    const ended = (event) => {
      for (const [name, does] of Object.entries(listeners)) removeEventListener(name, does);
      frame.remove();
      const [x, y] = [span(event, 0), span(event, 1)];
      if (event.type === "pointerup" && x[1] - x[0] > 6 && y[1] - y[0] > 6) this.showPlaces(x, [y[1], y[0]]);
    };
    const listeners = { pointermove: moved, pointerup: ended, pointercancel: ended };
    for (const [name, does] of Object.entries(listeners)) addEventListener(name, does);
  }
}

for (const element of document.querySelectorAll("figure[data-title]")) figures.set(element.id, new Figure(element));

// --- show me: an interval in the time line

function bars(figure) {
  return figure.has("mark") ? figure.spec.data.values : [];
}

function point({ where, from, to }, moves = true) {
  mark = null;
  for (const figure of figures.values()) {
    const row = bars(figure).filter((bar) => bar.where === where && bar.kind !== "down");
    if (!row.length) continue;
    // the red end that it is, or else the registration period that it is in, or else the first
    const bar =
      row.find((one) => one.kind === "stale" && Math.abs(one.from - from) < 2000) ??
      row.find((one) => one.from <= from && from <= one.to) ??
      row[0];
    mark = { where, from: bar.from };
    if (!moves) continue;
    const folded = figure.element.closest("details");
    if (folded) folded.open = true;
    const pad = Math.max(60_000, 2 * (to - from));
    figure.show(to ? [from - pad, to + pad] : null);
    figure.element.scrollIntoView({ block: "start" });
    figure.live.focus({ preventScroll: true });
  }
  for (const figure of figures.values()) figure.update();
  remember();
}

document.addEventListener("click", (event) => {
  const link = event.target.closest?.("a.show");
  if (!link?.dataset.where) return;
  event.preventDefault();
  point({ where: link.dataset.where, from: +link.dataset.from, to: +link.dataset.to });
});

// --- tables

class Table {
  constructor(element) {
    this.element = element;
    this.body = element.tBodies[0];
    this.rows = [...this.body.rows];
    this.sorted = null;
    if (this.rows.length < 2) return;
    this.heads = [...element.tHead.rows[0].cells];
    this.heads.forEach((head, column) => {
      if (!head.textContent.trim()) return;
      const button = make("button", { type: "button", title: "Sort by this column" }, ...head.childNodes);
      button.addEventListener("click", () => {
        const again = this.sorted?.column === column;
        this.sort(column, again ? !this.sorted.descending : head.classList.contains("number"));
      });
      head.replaceChildren(button);
    });
    if (this.rows.length > 8) this.addFilter();
  }

  value(row, column) {
    const cell = row.cells[column];
    const text = cell.dataset.v ?? cell.textContent.trim();
    const number = Number(text.replace(/,/g, "").replace(/ (s|%)$/, ""));
    return text === "" || text === "\u2013" ? null : Number.isNaN(number) ? text : number;
  }

  sort(column, descending) {
    if (!this.heads?.[column]) return;
    this.sorted = { column, descending };
    const way = descending ? -1 : 1;
    const compare = (one, other) => {
      const [a, b] = [this.value(one, column), this.value(other, column)];
      if (a === null || b === null) return (a === null) - (b === null);
      if (typeof a === "number" && typeof b === "number") return way * (a - b);
      return way * String(a).localeCompare(String(b), "en", { numeric: true });
    };
    this.body.replaceChildren(...[...this.rows].sort(compare));
    this.heads.forEach((head, index) => {
      if (index === column) head.setAttribute("aria-sort", descending ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
    remember();
  }

  addFilter() {
    this.filter = make("input", { type: "search", placeholder: "filter", "aria-label": `Filter: ${this.element.caption.textContent}` });
    this.count = make("span", { class: "count", "aria-live": "polite" });
    this.filter.addEventListener("input", () => this.find(this.filter.value));
    this.element.parentElement.before(make("div", { class: "controls" }, this.filter, this.count));
  }

  find(text) {
    this.filter.value = text;
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const row of this.rows) {
      const here = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => here.includes(word));
      shown += !row.hidden;
    }
    this.count.textContent = words.length ? `${shown} of ${this.rows.length}` : "";
    remember();
  }
}

for (const element of document.querySelectorAll("table")) tables.set(slug(element.caption.textContent), new Table(element));

for (const one of document.querySelectorAll("details")) {
  one.wasOpen = one.open;
  const place = one.parentElement.closest("section")?.id ?? "";
  details.set(`${place}.${slug(one.querySelector("summary").firstChild.textContent)}`, one);
  one.addEventListener("toggle", remember);
}

// a link to a chapter goes there, and leaves what is shown in the address
document.querySelector("nav")?.addEventListener("click", (event) => {
  const target = event.target.closest("a")?.hash.slice(1);
  if (!target || !location.hash.includes("=")) return;
  event.preventDefault();
  document.getElementById(target).scrollIntoView();
});

addEventListener("hashchange", recall);
recall();
