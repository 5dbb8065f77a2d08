"use strict";
// Tables that sort and filter, and pictures with texts for their points. Without scripts everything is still shown.

// The number or text to sort a cell by; empty ones stay last.
const key = cell => cell.dataset.sort ?? cell.textContent.trim();

for (const table of document.querySelectorAll(".sortable")) {
  const body = table.tBodies[table.tBodies.length - 1], original = [...body.rows];
  for (const button of table.tHead.querySelectorAll("button")) button.onclick = () => sortBy(button);
  dimRepeats();
  stickLabels();
  const filter = table.closest(".wide").previousElementSibling;
  if (filter?.matches(".filter")) addFilter(filter);

  // Clicks go from ascending to descending to the order of the file.
  function sortBy(button) {
    const head = button.closest("th"), index = Number(button.dataset.column);
    const order = { ascending: "descending", descending: "none" }[head.ariaSort] ?? "ascending";
    for (const other of table.tHead.querySelectorAll("[aria-sort]")) other.removeAttribute("aria-sort");
    if (order !== "none") head.setAttribute("aria-sort", order);
    const sign = order === "descending" ? -1 : 1, numeric = head.classList.contains("n");
    const compare = (a, b) => sign * (numeric ? a - b : a.localeCompare(b, "en", { numeric: true }));
    const keyed = original.map(row => [key(row.cells[index]), row]);
    if (order !== "none") keyed.sort(([a], [b]) => a === "" || b === "" ? (a === "") - (b === "") : compare(a, b));
    body.append(...keyed.map(([, row]) => row));
    dimRepeats();
  }

  // Row headings that repeat the row above are pale, so that groups of rows are visible in any order.
  function dimRepeats() {
    if (!table.matches(".pivot")) return;
    let above = [];
    for (const row of body.rows) {
      const labels = row.hidden ? [] : [...row.querySelectorAll(".label")];
      let same = true;
      labels.forEach((cell, i) => {
        same &&= above[i] === cell.textContent && i < labels.length - 1;
        cell.classList.toggle("repeat", same);
      });
      if (labels.length) above = labels.map(cell => cell.textContent);
    }
  }

  // As many row headings stay in sight as leave most of the box to the numbers.
  function stickLabels() {
    const heads = table.matches(".pivot") ? [...[...table.tHead.rows].at(-1).querySelectorAll(".label")] : [];
    let left = 0;
    for (const [i, head] of heads.entries()) {
      if (left + head.offsetWidth > 0.6 * table.closest(".wide").clientWidth) return;
      const column = [head, ...[...body.rows].map(row => row.cells[i])];
      for (const cell of column) Object.assign(cell.style, { position: "sticky", left: `${left}px`, zIndex: 1 });
      left += head.offsetWidth;
    }
  }

  // Rows with all of the words stay.
  function addFilter(line) {
    const input = line.querySelector("input"), count = line.querySelector("output");
    line.hidden = false;
    const texts = new Map(original.map(row => [row, [...row.cells].filter(cell => !cell.querySelector("details"))
      .map(cell => cell.textContent).join(" ").toLowerCase()]));
    input.oninput = () => {
      const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
      for (const row of original) row.hidden = !words.every(word => texts.get(row).includes(word));
      count.textContent = words.length ? `${original.filter(row => !row.hidden).length} of ${original.length}` : "";
      dimRepeats();
    };
  }
}

const tip = document.getElementById("tip");
let shown = null;
for (const plot of document.querySelectorAll(".plot")) {
  // Browsers would show a <title> as a second hint of their own.
  const points = [...plot.querySelectorAll(".point")].map(element => {
    const title = element.querySelector("title"), text = title.textContent;
    title.remove();
    return { element, text };
  });
  const middle = ({ element }) => {
    const box = element.getBoundingClientRect();
    return [box.x + box.width / 2, box.y + box.height / 2];
  };
  const bySize = points.map(point => [middle(point)[0], point]).sort(([a], [b]) => a - b).map(([, point]) => point);

  // The nearest point within reach of a finger; a mouse is led to it as well.
  const nearest = event => {
    const reach = event.pointerType === "touch" ? 26 : 14;
    const far = points.map(point => {
      const [x, y] = middle(point);
      return [Math.hypot(x - event.clientX, y - event.clientY), point];
    });
    const [distance, point] = far.reduce((a, b) => (b[0] < a[0] ? b : a), [Infinity, null]);
    return distance < reach ? point : null;
  };
  plot.onpointermove = plot.onpointerdown = event => show(nearest(event), middle);
  plot.onpointerleave = plot.onblur = () => show(null);
  plot.onkeydown = event => {
    if (event.key === "Escape") return show(null);
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!step || !points.length) return;
    event.preventDefault();
    const at = bySize.indexOf(shown);
    const next = at < 0 ? bySize.at(step > 0 ? 0 : -1) : bySize[Math.min(Math.max(at + step, 0), bySize.length - 1)];
    next.element.scrollIntoView({ block: "nearest", inline: "nearest" });
    show(next, middle);
  };
}

// Show a point's text next to it, within the window; null hides it.
function show(point, middle) {
  shown?.element.classList.remove("near");
  shown = point;
  tip.hidden = !point;
  if (!point) return;
  point.element.classList.add("near");
  tip.textContent = point.text;
  const [x, y] = middle(point), room = document.documentElement.clientWidth;
  const left = Math.max(4, Math.min(x + 14, room - tip.offsetWidth - 4));
  const top = y + 14 + tip.offsetHeight < innerHeight ? y + 14 : y - 14 - tip.offsetHeight;
  tip.style.transform = `translate(${left}px, ${top}px)`;
}
