// Keeps the page up to date while its run goes on. When the launcher has ended, the page stays as it
// is and says so.
"use strict";
const main = document.querySelector("main");
let shown = "";
async function update() {
  const begin = performance.now();
  try {
    const response = await fetch("body");
    const text = await response.text();
    if (response.ok && text !== shown) {
      const open = main.querySelector("details")?.open;
      main.innerHTML = shown = text;
      const details = main.querySelector("details");
      if (open && details) details.open = true;
    }
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
