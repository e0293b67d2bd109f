// The values of the mark nearest to the pointer. Without this script a browser shows a mark's title by itself.
(() => {
  const NEAR = 26;
  const tip = document.createElement("div");
  tip.className = "tip";
  tip.hidden = true;
  document.body.append(tip);
  let chosen = null;
  const choose = (mark, x, y) => {
    if (chosen !== mark) chosen?.classList.remove("near");
    chosen = mark;
    tip.hidden = !mark;
    if (!mark) return;
    mark.classList.add("near");
    tip.textContent = mark.dataset.tip;
    const { width, height } = tip.getBoundingClientRect(), edge = document.documentElement.clientWidth - width - 8;
    tip.style.left = `${Math.max(8, Math.min(edge, x - width / 2))}px`;
    tip.style.top = `${y - height - 14 < 0 ? y + 18 : y - height - 14}px`;
  };
  for (const svg of document.querySelectorAll("figure svg")) {
    const marks = [...svg.querySelectorAll(".mark")];
    if (!marks.length) continue;
    for (const mark of marks) {
      const title = mark.querySelector("title");
      mark.dataset.tip = title.textContent;
      mark.setAttribute("aria-label", title.textContent);
      title.remove();
    }
    const point = event => {
      let best = null, least = NEAR;
      for (const mark of marks) {
        const box = mark.getBoundingClientRect();
        const far = Math.hypot(box.left + box.width / 2 - event.clientX, box.top + box.height / 2 - event.clientY);
        if (far < least) [best, least] = [mark, far];
      }
      choose(best, event.clientX, event.clientY);
    };
    svg.addEventListener("pointermove", point);
    svg.addEventListener("pointerdown", point);
    svg.addEventListener("pointerleave", event => { if (event.pointerType === "mouse") choose(null); });
  }
  addEventListener("scroll", () => choose(null), { passive: true });
})();
