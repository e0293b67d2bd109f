// Latency of each run on one axis of time: the pointer reads all of them at once, dragging zooms, and a migration can be
// replayed: which worker has which bin. Everything is drawn from the JSON beside it.
(() => {
  const runs = JSON.parse(document.getElementById("timelines-data").textContent), place = document.getElementById("timelines");
  if (!runs.length) return;
  place.hidden = false;
  const NS = document.getElementById("replay-bins").namespaceURI, W = 900, H = 150, LEFT = 58, RIGHT = 8, TOP = 6, BOTTOM = 20;
  const end = Math.max(...runs.map(run => run.at_s.at(-1) + 0.25)), full = [0, end];
  let range = full, at = null;
  const make = (name, attributes, parent, text) => {
    const node = document.createElementNS(NS, name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    if (text !== undefined) node.textContent = text;
    if (parent) parent.append(node);
    return node;
  };
  const x = t => LEFT + (t - range[0]) / (range[1] - range[0]) * (W - LEFT - RIGHT);
  const time = px => range[0] + (px - LEFT) / (W - LEFT - RIGHT) * (range[1] - range[0]);
  const top = Math.max(...runs.flatMap(run => run.max)) * 1.1, low = Math.min(...runs.flatMap(run => run.p50.filter(v => v > 0))) / 1.3;
  const y = v => TOP + (1 - Math.log(Math.max(v, low) / low) / Math.log(top / low)) * (H - TOP - BOTTOM);
  const ms = v => v >= 10000 ? (v / 1000).toFixed(1) + " s" : v >= 1000 ? (v / 1000).toFixed(2) + " s" : v.toFixed(0) + " ms";
  const ticks = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 2e5].filter(v => v > low && v < top);
  const shown = ticks.length > 7 ? ticks.filter(v => String(v)[0] === "1") : ticks;
  const index = (times, t) => { let i = times.findIndex(v => v > t); return Math.max(0, (i < 0 ? times.length : i) - 1); };

  const views = runs.map((run, number) => {
    const box = document.createElement("div");
    box.className = "timeline";
    const head = document.createElement("p"), name = document.createElement("span"), words = document.createElement("span");
    name.className = "name"; words.className = "small"; name.textContent = run.name;
    name.style.color = `var(--${run.hue})`;
    head.append(name, " ", words);
    const svg = make("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": `Latency of ${run.name} over time` });
    make("clipPath", { id: `clip-${number}` }, svg).append(make("rect", { x: LEFT, y: 0, width: W - LEFT - RIGHT, height: H }));
    const marks = make("g", {}, svg), lines = make("g", { "clip-path": `url(#clip-${number})` }, svg);
    const cursor = make("line", { y1: TOP, y2: H - BOTTOM, class: "cursor", visibility: "hidden" }, svg);
    const zoom = make("rect", { y: TOP, height: H - TOP - BOTTOM, class: "zoom", visibility: "hidden" }, svg);
    box.append(head, svg);
    place.append(box);
    return { run, words, svg, marks, lines, cursor, zoom };
  });

  const draw = () => {
    for (const { run, marks, lines } of views) {
      marks.replaceChildren(); lines.replaceChildren();
      for (const [begin, over] of run.migrations)
        make("rect", { x: x(begin), y: TOP, width: Math.max(1, x(over) - x(begin)), height: H - TOP - BOTTOM, class: "migration" }, lines);
      for (const v of shown) {
        make("line", { x1: LEFT, x2: W - RIGHT, y1: y(v), y2: y(v), class: "rule" }, marks);
        make("text", { x: LEFT - 6, y: y(v) + 3.5, "text-anchor": "end" }, marks, ms(v).replace(".00", ""));
      }
      const step = [0.5, 1, 2, 5, 10, 20, 50, 100, 200].find(s => (range[1] - range[0]) / s <= 10) || 500;
      for (let t = Math.ceil(range[0] / step) * step; t <= range[1]; t += step)
        make("text", { x: x(t), y: H - 5, "text-anchor": "middle" }, marks, `${+t.toFixed(1)} s`);
      for (const [measure, style] of [["max", "max"], ["p99", "p99"], ["p50", "p50"]]) {
        const points = run.at_s.map((t, i) => `${x(t + 0.125).toFixed(1)},${y(run[measure][i]).toFixed(1)}`);
        make("polyline", { points: points.join(" "), class: style, stroke: `var(--${run.hue})` }, lines);
      }
    }
    point(at);
  };

  const point = t => {
    at = t;
    for (const { run, words, cursor } of views) {
      if (t === null || t < range[0] || t > range[1]) {
        cursor.setAttribute("visibility", "hidden");
        words.textContent = "p50, p99 and max of each quarter of a second";
        continue;
      }
      const i = index(run.at_s, t), e = index(run.epoch_s, t);
      cursor.setAttribute("visibility", "visible");
      cursor.setAttribute("x1", x(t)); cursor.setAttribute("x2", x(t));
      const queue = run.queued[e] ? `, ${run.queued[e].toLocaleString("en")} queued` : "";
      words.textContent = `${t.toFixed(2)} s: p50 ${ms(run.p50[i])}, p99 ${ms(run.p99[i])}, max ${ms(run.max[i])}; ${run.unit} ${ms(run.epoch_ms[e])}${queue}`;
    }
    replay(t);
  };

  for (const view of views) {
    let from = null;
    const where = event => {
      const bounds = view.svg.getBoundingClientRect();
      return Math.min(range[1], Math.max(range[0], time((event.clientX - bounds.left) / bounds.width * W)));
    };
    view.svg.onpointermove = event => {
      const t = where(event);
      point(t);
      if (from === null) return;
      view.zoom.setAttribute("visibility", "visible");
      view.zoom.setAttribute("x", Math.min(x(from), x(t)));
      view.zoom.setAttribute("width", Math.abs(x(t) - x(from)));
    };
    view.svg.onpointerdown = event => { from = where(event); };
    view.svg.onpointerup = event => {
      const t = where(event), wide = from !== null && Math.abs(t - from) > (range[1] - range[0]) / 100;
      if (wide) { range = [Math.min(from, t), Math.max(from, t)]; draw(); }
      from = null;
      view.zoom.setAttribute("visibility", "hidden");
    };
    view.svg.onpointerleave = () => { from = null; view.zoom.setAttribute("visibility", "hidden"); };
    view.svg.ondblclick = () => { range = full; draw(); };
  }
  document.getElementById("zoom-out").onclick = () => { range = full; draw(); };

  // The replay: a square per bin, a row of squares per worker.
  const chooser = document.getElementById("replay-run"), canvas = document.getElementById("replay-bins"), slider = document.getElementById("replay-at");
  const told = document.getElementById("replay-told"), play = document.getElementById("replay-play");
  const replayed = runs.filter(run => run.replay && run.migrations.length);
  let timer = null;
  for (const run of replayed) chooser.append(new Option(run.name, run.name));
  document.getElementById("replay").hidden = !replayed.length;
  const longest = [...replayed].sort((a, b) => b.replay.changes.length - a.replay.changes.length)[0];  // there is most to see
  if (longest) chooser.value = longest.name;
  slider.max = end; slider.step = 0.05;
  const chosen = () => replayed.find(run => run.name === chooser.value) || replayed[0];
  const colour = (worker, workers) => `hsl(${Math.round(360 * worker / workers)} 55% 52%)`;
  function replay(t) {
    if (!replayed.length || t === null) return;
    slider.value = t;
    const run = chosen(), e = index(run.epoch_s, t), { workers, first, changes } = run.replay;
    const routing = [...first], fresh = new Set();
    for (const [number, ...pairs] of changes) {
      if (number > e) break;
      for (let i = 0; i < pairs.length; i += 2) {
        routing[pairs[i]] = pairs[i + 1];
        if (number === e) fresh.add(pairs[i]);
      }
    }
    const rows = Array.from({ length: workers }, () => []);
    routing.forEach((worker, bin) => rows[worker].push(bin));
    const most = Math.max(...rows.map(row => row.length)), columns = Math.min(96, Math.max(16, most)), size = 9;
    const heights = rows.map(row => Math.max(1, Math.ceil(row.length / columns)));
    canvas.replaceChildren();
    canvas.setAttribute("viewBox", `0 0 ${84 + columns * size} ${heights.reduce((a, b) => a + b * size + 6, 0)}`);
    let down = 0;
    rows.forEach((row, worker) => {
      make("text", { x: 0, y: down + 9 }, canvas, `worker ${worker}: ${row.length}`);
      row.forEach((bin, i) => {
        const square = make("rect", {
          x: 84 + i % columns * size, y: down + Math.floor(i / columns) * size, width: size - 1, height: size - 1,
          fill: colour(first[bin], workers), class: fresh.has(bin) ? "fresh" : "" }, canvas);
        make("title", {}, square, `bin ${bin}, at first with worker ${first[bin]}`);
      });
      down += heights[worker] * size + 6;
    });
    const moved = run.moved_bytes[e] ? `, ${(run.moved_bytes[e] / 1048576).toFixed(1)} MiB pulled` : "";
    told.textContent = `${(+t).toFixed(2)} s: ${fresh.size} bin${fresh.size === 1 ? "" : "s"} routed anew in this ${run.unit}${moved}, ${run.queued[e].toLocaleString("en")} records queued, p99 ${ms(run.p99[index(run.at_s, t)])}`;
  }
  slider.oninput = () => point(+slider.value);
  chooser.onchange = () => point(+slider.value);
  play.onclick = () => {
    if (timer) { clearInterval(timer); timer = null; play.textContent = "Play"; return; }
    const from = +slider.value;
    let t = from > 0 && from < end - 0.1 ? from : Math.max(0, chosen().migrations[0][0] - 1);
    play.textContent = "Stop";
    timer = setInterval(() => {
      t += 0.05;
      if (t >= end) { clearInterval(timer); timer = null; play.textContent = "Play"; return; }
      point(t);
    }, 50);
  };
  draw();
  if (replayed.length) replay((chosen().migrations[0][0] + chosen().migrations[0][1]) / 2);
})();
