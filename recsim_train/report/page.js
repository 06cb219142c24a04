"use strict";
// Sorts a table by the column whose head is chosen, and back; by numbers with their units where
// these are numbers.
const UNITS = { k: 1e3, M: 1e6, G: 1e9, ns: 1e-9, "µs": 1e-6, ms: 1e-3, KiB: 2 ** 10, MiB: 2 ** 20,
  GiB: 2 ** 30, TiB: 2 ** 40 };
function value(cell) {
  const said = cell.textContent.trim().replaceAll("−", "-").replaceAll(",", "").replace(/^± */, "");
  const found = /^([-+]?[0-9.]+)\s*([a-zA-Zµ]*)/.exec(said);
  return found ? parseFloat(found[1]) * (UNITS[found[2]] ?? 1) : said.toLowerCase();
}
function compare(a, b) {
  if (typeof a === typeof b) return a < b ? -1 : a > b ? 1 : 0;
  return typeof a === "number" ? -1 : 1;
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
