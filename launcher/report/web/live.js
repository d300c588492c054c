// Keeps the page up to date while its run goes on. When the run has ended, the page is its report and
// no longer changes. When the launcher has ended before, the page says so.
"use strict";
const main = document.querySelector("main");
const chosen = "details[open], input:checked"; // what a reader has opened or chosen keeps its state
let shown = "";
function replace(text) {
  const ids = Array.from(main.querySelectorAll(chosen), element => element.id);
  main.innerHTML = shown = text;
  for (const id of ids) {
    const element = document.getElementById(id);
    if (element?.tagName === "DETAILS") element.open = true;
    else if (element) element.checked = true;
  }
}
async function update() {
  const begin = performance.now();
  try {
    const response = await fetch("body");
    const text = await response.text();
    if (response.ok && text !== shown) replace(text);
    if (response.headers.get("Spmoe-Run") === "ended") return;
  } catch {
    const note = document.createElement("p");
    note.className = "note";
    note.textContent = "The launcher of this run has ended: this page no longer changes. report.html in the folder of the run has all of it.";
    main.querySelector(".badges")?.after(note);
    return;
  }
  // The page of a long run takes the time of its ranks: a twentieth of it at most.
  const took = performance.now() - begin;
  setTimeout(update, Math.max(document.hidden ? 30000 : 5000, 20 * took));
}
setTimeout(update, 5000);
