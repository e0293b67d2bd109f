// The switch between light and dark, and tables that sort by the column whose head is chosen.
const root = document.documentElement, toggle = document.getElementById("theme");
const isDark = () => root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
const label = () => { toggle.textContent = isDark() ? "Light" : "Dark"; };
toggle.hidden = false;
toggle.onclick = () => { root.dataset.theme = isDark() ? "light" : "dark"; label(); };
label();
for (const th of document.querySelectorAll(".sortable th")) {
  const sort = () => {
    const place = th.cellIndex, body = th.closest("table").tBodies[0], up = th.getAttribute("aria-sort") !== "ascending";
    const value = row => row.cells[place].dataset.value;
    const order = (a, b) => {
      const [x, y] = [value(a), value(b)];
      if (x === "" || y === "") return (x === "") - (y === "");
      return (up ? 1 : -1) * (isNaN(x) || isNaN(y) ? x.localeCompare(y) : x - y);
    };
    for (const other of th.parentNode.cells) other.removeAttribute("aria-sort");
    th.setAttribute("aria-sort", up ? "ascending" : "descending");
    body.append(...[...body.rows].sort(order));
  };
  th.onclick = sort;
  th.onkeydown = event => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); sort(); } };
}
