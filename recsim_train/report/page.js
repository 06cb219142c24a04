"use strict";
// Sorts a table by the column whose head is chosen, and back; by numbers with their units where
// these are numbers.
const UNITS = { k: 1e3, M: 1e6, G: 1e9, ns: 1e-9, "µs": 1e-6, ms: 1e-3, s: 1, min: 60, h: 3600,
  days: 86400, B: 1, KiB: 2 ** 10, MiB: 2 ** 20, GiB: 2 ** 30, TiB: 2 ** 40, of: 1, to: 1, "": 1 };
function value(cell) {
  const said = cell.textContent.trim().replaceAll("−", "-").replaceAll(",", "").replace(/^± */, "");
  const found = /^([-+]?[0-9.]+)\s*([^\s\d%(±]*)/.exec(said);
  if (!found) return said.toLowerCase();
  const own = found[2] in UNITS ? "" : found[2];
  return { own, number: parseFloat(found[1]) * (UNITS[found[2]] ?? 1) };
}
// Numbers of units of their own, such as amounts of two currencies, are not compared: they stay apart.
function compare(a, b) {
  if (typeof a !== typeof b) return typeof a === "string" ? 1 : -1;
  const [x, y] = typeof a === "string" ? [a, b] : a.own === b.own ? [a.number, b.number] : [a.own, b.own];
  return x < y ? -1 : x > y ? 1 : 0;
}
for (const head of document.querySelectorAll("thead button")) {
  head.addEventListener("click", () => {
    const cell = head.closest("th"), body = cell.closest("table").tBodies[0];
    const down = cell.getAttribute("aria-sort") === "ascending";
    for (const other of cell.parentNode.children) other.removeAttribute("aria-sort");
    cell.setAttribute("aria-sort", down ? "descending" : "ascending");
    const rows = [...body.rows].map((row) => [value(row.cells[cell.cellIndex]), row]);
    rows.sort(([a], [b]) => (down ? compare(b, a) : compare(a, b)));
    for (const [, row] of rows) body.append(row);
  });
}
// Shows at once, and to who has no mouse, what a browser shows after a while as a title.
const tip = document.getElementById("tip");
function told(target) {
  const marked = target.closest?.("[data-tip], [title], svg g:has(> title)");
  if (!marked) return "";
  const inner = marked.matches("g") && marked.querySelector(":scope > title");
  if (inner) {
    marked.dataset.tip = inner.textContent;
    inner.remove();
  } else if (marked.hasAttribute("title")) {
    marked.dataset.tip = marked.getAttribute("title");
    marked.removeAttribute("title");
  }
  return marked.dataset.tip;
}
function show(event) {
  const words = told(event.target);
  tip.hidden = !words;
  if (!words) return;
  tip.textContent = words;
  const left = Math.min(event.clientX + 14, document.documentElement.clientWidth - tip.offsetWidth - 6);
  const below = event.clientY + 18, room = window.innerHeight - tip.offsetHeight - 6;
  tip.style.left = `${Math.max(6, left)}px`;
  tip.style.top = `${below > room ? Math.max(6, event.clientY - tip.offsetHeight - 12) : below}px`;
}
document.addEventListener("pointerover", show);
document.addEventListener("pointerdown", show);
document.addEventListener("scroll", () => { tip.hidden = true; }, { passive: true, capture: true });
