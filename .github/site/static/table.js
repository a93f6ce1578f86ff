// Search and sort in the table of all models: a field above it, buttons in its head.
"use strict";
for (const table of document.querySelectorAll("table.catalogue")) {
  const rows = [...table.tBodies[0].rows];

  const label = document.createElement("label");
  label.className = "catalogue-search";
  label.innerHTML = `Search <input type="search"> <output></output>`;
  table.parentElement.before(label);
  const [field, count] = label.children;
  const filter = () => {
    const words = field.value.toLowerCase().split(/\s+/);
    let shown = 0;
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
      shown += !row.hidden;
    }
    count.textContent = `${shown} of ${rows.length} rows`;
  };
  field.addEventListener("input", filter);
  filter();

  for (const head of table.tHead.rows[0].cells) {
    const button = document.createElement("button");
    button.textContent = head.textContent;
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      const down = head.ariaSort === "ascending";
      for (const each of table.tHead.rows[0].cells) each.removeAttribute("aria-sort");
      head.ariaSort = down ? "descending" : "ascending";
      const text = (row) => row.cells[head.cellIndex].textContent;
      rows.sort((a, b) => {
        const [x, y] = [text(a), text(b)];
        if (!x || !y) return !x - !y; // what has no value comes last
        const order = x.localeCompare(y, "en", { numeric: true });
        return down ? -order : order;
      });
      table.tBodies[0].append(...rows);
    });
  }
}
