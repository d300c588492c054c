// Draws a page from its data: the JSON in the element "data", with the types of Go's package page.
"use strict";
const main = document.querySelector("main");
const page = JSON.parse(document.getElementById("data").textContent);
const view = {smooth: 10, log: false, zoom: {}, hidden: new Set(), open: new Set()}; // zoom: ranges of x, by the name of the axis
const narrow = () => main.clientWidth < 560;
const colorOf = o => `c${(o.color ?? 0) % 7}`;

// element makes an element with attributes, event handlers and children.
function element(name, attributes, ...children) {
  const [kind, rest] = name.split(":");
  const e = rest ? document.createElementNS("http://www.w3.org/2000/svg", rest) : document.createElement(kind);
  for (const [key, value] of Object.entries(attributes ?? {})) {
    if (key.startsWith("on")) e[key] = value;
    else if (value !== undefined && value !== false && value !== "") e.setAttribute(key, value);
  }
  e.append(...children.flat().filter(c => c !== undefined && c !== null && c !== "" && c !== false));
  return e;
}
const text = (attributes, words) => element("svg:text", attributes, words);
const swatch = o => element("i", {class: `swatch ${colorOf(o)}`});

// Numbers.

function format(v, step) {
  if (v === null || v === undefined || !isFinite(v)) return "–";
  if (Math.abs(v) < 1e-12 * (step ?? 1)) v = 0;
  if (v && (Math.abs(v) >= 1e15 || Math.abs(v) < 1e-4 && !step)) return v.toExponential(3);
  const digits = step ? -Math.floor(Math.log10(step) + 1e-9) : 4 - Math.floor(Math.log10(Math.abs(v) || 1));
  const places = Math.max(0, Math.min(12, digits));
  return v.toLocaleString("en", {maximumFractionDigits: places, minimumFractionDigits: step ? places : 0}).replace("-", "−");
}
// ticks returns at most about n values in a range, with their labels.
function ticks([low, high], n, log) {
  const list = [];
  if (log && high / low >= 8) {
    const factors = high / low > 1e3 ? [1] : [1, 2, 5];
    for (let e = Math.floor(Math.log10(low)); e <= Math.log10(high); e++) {
      for (const f of factors) if (f * 10 ** e >= low && f * 10 ** e <= high) list.push(f * 10 ** e);
    }
    return list.map(v => [v, format(v)]);
  }
  const raw = (high - low) / Math.max(n, 1), unit = 10 ** Math.floor(Math.log10(raw));
  const step = unit * [1, 2, 5, 10].find(m => m * unit >= raw * (1 - 1e-9));
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; i++) list.push([i * step, format(i * step, step)]);
  return list;
}
const there = v => v !== null && v !== undefined && isFinite(v);
function extent(values) {
  let low = Infinity, high = -Infinity;
  for (const v of values) if (there(v)) { low = Math.min(low, v); high = Math.max(high, v); }
  return [low, high];
}
// smoothed returns centered means. Windows at the ends are smaller, so that they stay symmetric.
function smoothed(values, window) {
  const half = Math.floor(window / 2), sums = [0], counts = [0];
  if (half < 1) return values;
  values.forEach((v, i) => { sums.push(sums[i] + (v ?? 0)); counts.push(counts[i] + (v === null ? 0 : 1)); });
  return values.map((v, i) => {
    const h = Math.min(half, i, values.length - 1 - i);
    return v === null ? null : (sums[i + h + 1] - sums[i - h]) / (counts[i + h + 1] - counts[i - h]);
  });
}

// Charts.

// frame returns an SVG with axes, and functions between values and places in it.
function frame(c, width, height, x, y) {
  const rows = ticks(y, height / 45, c.y?.log), left = Math.max(...rows.map(r => r[1].length), 1) * 6.8 + 14;
  const top = 8, bottom = height - (c.x?.name ? 40 : 24), end = Math.max(left + 40, width - 12);
  const scale = (range, log, from, to) => {
    const [a, b] = log ? range.map(Math.log) : range;
    return [v => from + ((log ? Math.log(v) : v) - a) / (b - a || 1) * (to - from),
      p => { const v = a + (p - from) / (to - from) * (b - a); return log ? Math.exp(v) : v; }];
  };
  const [toX, fromX] = scale(x, c.x?.log, left, end), [toY] = scale(y, c.y?.log, bottom, top);
  const svg = element("svg:svg", {role: "img", "aria-label": c.title, viewBox: `0 0 ${width} ${height}`, width, height});
  const inner = element("svg:rect", {x: left - 4, y: top - 4, width: end - left + 8, height: bottom - top + 8});
  const clip = element("svg:clipPath", {id: `clip-${c.id}`}, inner);
  const marks = element("svg:g", {"clip-path": `url(#clip-${c.id})`});
  for (const [v, label] of rows) {
    svg.append(element("svg:line", {class: "grid", x1: left, x2: end, y1: toY(v), y2: toY(v)}),
      text({class: "tick", x: left - 7, y: toY(v) + 4, "text-anchor": "end"}, label));
  }
  for (const [v, label] of ticks(x, (end - left) / 80, c.x?.log)) {
    const anchor = toX(v) > end - 12 ? "end" : "middle";
    svg.append(element("svg:line", {class: "grid", x1: toX(v), x2: toX(v), y1: top, y2: bottom}),
      text({class: "tick", x: anchor === "end" ? end : toX(v), y: bottom + 16, "text-anchor": anchor}, label));
  }
  if (c.x?.name) svg.append(text({class: "axis", x: (left + end) / 2, y: height - 6, "text-anchor": "middle"}, c.x.name));
  svg.append(clip, marks);
  return {svg, marks, toX, toY, fromX, left, right: end, top, bottom};
}
const at = (x, y) => `${x.toFixed(1)} ${y.toFixed(1)}`;
// path returns a line through points, with gaps where values are missing.
function path(xs, ys, {toX, toY}) {
  let line = "", pen = "M";
  xs.forEach((x, i) => {
    const shown = there(ys[i]) && isFinite(toY(ys[i]));
    if (shown) line += pen + at(toX(x), toY(ys[i]));
    pen = shown ? "L" : "M";
  });
  return line;
}
// area returns the outline of the region between two lines. It skips points where one is missing.
function area(xs, low, high, {toX, toY}) {
  const shown = [...xs.keys()].filter(i => [low[i], high[i]].every(v => there(v) && isFinite(toY(v))));
  if (!shown.length) return "";
  const side = ys => shown.map(i => at(toX(xs[i]), toY(ys[i])));
  return `M${side(high).join("L")}L${side(low).reverse().join("L")}Z`;
}

// shown returns the curves of a chart as they are drawn. Few points, with dots, are not smoothed. Of
// few smoothed curves, the values themselves are drawn too, as thin lines.
function shown(c) {
  const points = Math.max(...c.curves.map(o => o.x.length)); // curves of one chart are smoothed alike
  return c.curves.map(o => {
    const window = c.smooth && !o.dots ? 1 + Math.floor(points * view.smooth / 600) : 1, smooth = list => list && smoothed(list, window);
    const thin = window > 1 && c.curves.length < 4 ? o.y : null;
    return {...o, thin, y: smooth(o.y), low: smooth(o.low), high: smooth(o.high)};
  }).filter(o => !view.hidden.has(`${c.id} ${o.name}`));
}
// ranges returns the ranges of both axes, which have all that is drawn. A curve that leaves the
// others far above does not set the scale, because a run may diverge.
function ranges(c, curves, log) {
  const zoom = view.zoom[c.x?.name];
  let x = zoom ?? extent(curves.flatMap(o => o.x));
  if (!(x[0] <= x[1])) x = [0, 1];
  if (x[0] === x[1]) x = [x[0] - 0.5, x[0] + 0.5];
  const inside = o => [o.y, o.thin, o.low, o.high].flatMap(
    list => (list ?? []).filter((v, i) => o.x[i] >= x[0] && o.x[i] <= x[1] && (!log || v > 0)));
  let y = extent(curves.flatMap(inside));
  if (curves.length > 1) {
    const tops = curves.map(o => extent(inside(o))[1]).filter(isFinite).sort((a, b) => a - b);
    if (tops[0] > 0) y[1] = Math.min(y[1], 3 * tops[Math.floor((tops.length - 1) / 2)]);
  }
  if (!(y[0] <= y[1])) return [x, log ? [0.5, 1] : [0, 1]];
  if (log) return [x, [y[0] / 1.04, y[1] * 1.04]];
  const pad = 0.04 * (y[1] - y[0]) || 0.02 * Math.abs(y[1]) || 1, from = c.y?.min;
  return [x, [from === undefined ? y[0] - pad : Math.min(from, y[0]), y[1] + pad]];
}
function drawCurves(c, drawing, width) {
  const curves = shown(c), log = c.y?.log || view.log, [x, y] = ranges(c, curves, log);
  const f = frame({...c, y: {...c.y, log}}, width, narrow() ? 230 : c.wide ? 300 : 250, x, y), {marks, toX, toY} = f;
  const draw = (name, attributes) => marks.append(element(`svg:${name}`, attributes));
  for (const o of curves) {
    const color = colorOf(o);
    if (o.low) draw("path", {class: `band ${color}`, d: area(o.x, o.low, o.high, f)});
    if (o.thin) draw("path", {class: `thin ${color}`, d: path(o.x, o.thin, f)});
    if (!o.dots || o.x.length > 4) { // few points would show a course that was not measured
      draw("path", {class: `line ${color}`, d: path(o.x, o.y, f)});
    }
    if (!o.dots || o.x.length > 60) continue;
    o.x.forEach((v, i) => {
      if (there(o.y[i]) && isFinite(toY(o.y[i]))) draw("circle", {class: `dot ${color}`, cx: toX(v), cy: toY(o.y[i]), r: 2.6});
    });
  }
  follow(c, drawing, f, curves);
}
// follow shows the values under the pointer, and zooms where it drags.
function follow(c, drawing, {svg, toX, fromX, left, right, top, bottom}, curves) {
  const tip = element("div", {class: "tip", hidden: "hidden"}), cursor = element("svg:line", {class: "cursor", y1: top, y2: bottom});
  const drag = element("svg:rect", {class: "drag", y: top, height: bottom - top}), axis = c.x?.name ?? "";
  const place = e => Math.min(right, Math.max(left, e.clientX - svg.getBoundingClientRect().left));
  const nearest = (list, px) => list.reduce((best, v, i) => Math.abs(toX(v) - px) < Math.abs(toX(list[best]) - px) ? i : best, 0);
  let from = null;
  const hide = () => { tip.hidden = true; cursor.remove(); drag.remove(); from = null; };
  svg.onpointermove = e => {
    const px = place(e), rows = curves.filter(o => o.x.length).map(o => [o, nearest(o.x, px)]);
    if (!rows.length) return;
    const xs = rows.map(([o, i]) => o.x[i]), x = xs[nearest(xs, px)];
    const values = rows.map(([o, i]) => element("div", {}, swatch(o), `${o.name} ${format(o.y[i])}`));
    tip.replaceChildren(element("b", {}, `${axis} ${format(x)}`), ...values);
    for (const end of ["x1", "x2"]) cursor.setAttribute(end, toX(x));
    svg.append(cursor);
    if (from !== null) {
      drag.setAttribute("x", Math.min(from, px));
      drag.setAttribute("width", Math.abs(px - from));
      svg.append(drag);
    }
    tip.hidden = false;
    tip.style.left = `${Math.max(0, Math.min(toX(x) + 12, drawing.clientWidth - tip.offsetWidth))}px`;
  };
  svg.onpointerdown = e => { from = place(e); };
  svg.onpointerup = e => {
    const ends = from === null ? [] : [from, place(e)].sort((a, b) => a - b);
    hide();
    if (ends[1] - ends[0] > 8) { view.zoom[axis] = ends.map(fromX); keep(); redraw(); }
  };
  svg.onpointerleave = hide;
  svg.ondblclick = () => { delete view.zoom[axis]; keep(); redraw(); };
  drawing.append(svg, tip);
}
function chart(c) {
  const drawing = element("div", {class: "drawing"}), figure = element("figure", {id: c.id, class: c.wide ? "wide" : ""});
  figure.draw = () => { drawing.replaceChildren(); drawCurves(c, drawing, figure.clientWidth); };
  const key = o => `${c.id} ${o.name}`, toggle = o => e => {
    if (!view.hidden.delete(key(o))) view.hidden.add(key(o));
    e.currentTarget.classList.toggle("off");
    keep();
    figure.draw();
  };
  const legend = c.curves?.length > 1 ? c.curves.map(o =>
    element("button", {class: view.hidden.has(key(o)) ? "off" : "", title: "show or hide", onclick: toggle(o)}, swatch(o), o.name)) : [];
  const unit = c.y?.name && element("span", {class: "axis"}, c.y.name);
  figure.append(element("h3", {}, c.title), element("div", {class: "legend"}, unit, legend), drawing, element("figcaption", {}, c.caption));
  return figure;
}
function redraw() {
  document.querySelectorAll("figure").forEach(f => f.draw());
  document.querySelector("#unzoom")?.toggleAttribute("hidden", !Object.keys(view.zoom).length);
  const facts = document.querySelector(".facts");
  if (facts) { // rows of about the same number of cards
    const fit = Math.max(1, Math.floor((facts.clientWidth + 12) / (narrow() ? 160 : 222))), n = page.facts.length;
    facts.style.gridTemplateColumns = `repeat(${Math.ceil(n / Math.ceil(n / fit))}, minmax(0, 1fr))`;
  }
}

// The controls are kept in the hash of the URL.

function keep() {
  const hash = new URLSearchParams();
  if (view.smooth !== 10) hash.set("smooth", view.smooth);
  if (view.log) hash.set("log", "1");
  for (const [axis, range] of Object.entries(view.zoom)) hash.append("zoom", `${range.map(v => v.toPrecision(6)).join(" ")} ${axis}`);
  for (const name of view.hidden) hash.append("hide", name);
  for (const id of view.open) hash.append("open", id);
  history.replaceState(null, "", `#${hash}`);
}
function restore() {
  const hash = new URLSearchParams(location.hash.slice(1)), smooth = Number(hash.get("smooth") ?? 10);
  Object.assign(view, {smooth: smooth >= 0 && smooth <= 60 ? smooth : 10, log: hash.get("log") === "1", zoom: {},
    hidden: new Set(hash.getAll("hide")), open: new Set(hash.getAll("open"))});
  for (const text of hash.getAll("zoom")) {
    const [from, to, ...axis] = text.split(" "), range = [Number(from), Number(to)];
    if (range[0] < range[1]) view.zoom[axis.join(" ")] = range;
  }
}

// The page of a run: what it shows follows from the data of the run.

const missing = "–";
const fixed = (v, places) => there(v) ? v.toFixed(places).replace("-", "−") : missing;
const whole = v => there(v) ? Math.round(v).toLocaleString("en") : missing;
const percent = v => there(v) ? `${Number((100 * v).toFixed(1))}%` : missing;
const plural = (n, thing) => `${n} ${thing}${n === 1 ? "" : "s"}`;
const cells = (...texts) => texts.map(text => ({text: String(text ?? "")}));
// duration formats seconds: 1h02m03s, 4m05s, 6s.
function duration(seconds) {
  const s = Math.round(seconds), two = n => String(n).padStart(2, "0");
  if (s >= 3600) return `${Math.floor(s / 3600)}h${two(Math.floor(s / 60) % 60)}m${two(s % 60)}s`;
  return s >= 60 ? `${Math.floor(s / 60)}m${two(s % 60)}s` : `${s}s`;
}
const started = r => r.starts?.at(-1) ?? {};
const tokensPerStep = r => r.starts?.[0]?.tokens ?? 0;
const machine = s => `${s.cpu}, ${plural(s.cores, "core")}, ${s.tier}`;
const last = list => list?.findLast(there);

function state(r) {
  const steps = Number(r.settings.steps);
  if (r.done) return "done";
  if (!r.made) return "no step yet";
  return (steps > 0 ? `step ${r.made} of ${steps}` : `${plural(r.made, "step")} made`) + (r.left ? `, about ${duration(r.left)} left` : "");
}
function facts(r) {
  const list = [], add = (name, value, more) => list.push({name, value, more}), s = started(r), validation = r.curves.validation;
  const inBits = (nats, bits) => bits && there(nats) ? `${fixed(nats * bits, 4)} bits/byte; ` : "";
  if (r.settings.flavor) add("model", r.settings.flavor, `in ${r.settings.precision}`);
  if (r.curves.loss) {
    add("training loss", fixed(r.tail, 4), `${inBits(r.tail, r.bits[0])}nats/token, mean of the last 10 steps; first ${fixed(r.first, 4)}`);
  }
  if (r.made) {
    const planned = Number(r.settings.steps) > r.made ? ` of ${whole(Number(r.settings.steps))}` : "";
    add("steps", whole(r.made) + planned, tokensPerStep(r) ? `${whole(r.made * tokensPerStep(r))} tokens` : "");
  }
  if (validation) {
    const loss = last(validation.y), gzip = r.done?.gzip_bits_per_byte;
    add("validation loss", fixed(loss, 4), `${inBits(loss, r.bits[1])}after step ${whole(validation.x.at(-1))}; first ${fixed(validation.y[0], 4)}` +
      (gzip ? `; any bytes: 8 bits/byte, gzip: ${fixed(gzip, 4)}` : ""));
  }
  if (there(r.speed)) add("tokens/s", whole(r.speed), there(r.mfu) ? `${percent(r.mfu)} of the machine’s measured peak (MFU)` : "median step");
  if (s.ranks) add("ranks", s.ranks, machine(s));
  if (r.skipped) add("skipped steps", r.skipped, "their gradients were not fit for use");
  return list;
}
function badges(r) {
  const list = [{text: state(r), class: r.done ? "good" : "warn"}], count = kind => r.events?.filter(e => e.event === kind).length;
  if (count("detected")) list.push({text: `${count("detected")} failed and replaced`, class: "bad"});
  if (count("alarm")) list.push({text: `alarms: ${count("alarm")}`, class: "warn"});
  return list;
}
// curveSections returns the charts of a run.
function curveSections(r, figures) {
  const sections = [], x = {name: "step"};
  const curve = (id, name = r.name, more = {}) => r.curves[id] ? [{...r.curves[id], name, color: 1, ...more}] : [];
  const add = (section, chart) => {
    if (!chart.curves.length) return;
    if (sections.at(-1)?.title !== section) sections.push({title: section, blocks: [{charts: []}]});
    sections.at(-1).blocks[0].charts.push({x, smooth: true, ...chart});
  };
  const changed = (r.starts ?? []).filter(s => s.new_data).map(s => ` This run has ${s.new_data}.`).join("");
  add("Loss", {id: "loss", title: "Loss", wide: true, y: {name: "nats/token"},
    curves: [...curve("loss", "training text"), ...curve("validation", "validation text", {color: 2, dots: true})],
    caption: `Thick lines are smoothed. A growing gap between training and validation loss means that the run memorizes its text.${changed}`});
  for (const section of new Set(figures.map(f => f.section))) {
    for (const f of figures.filter(f => f.section === section)) add(section, {...f, y: {name: f.unit, log: f.log, min: f.log ? undefined : f.floor}, curves: curve(f.id)});
  }
  return sections;
}
// details returns the sections without charts.
function details(r) {
  const sections = [], add = (title, ...blocks) => blocks.length && sections.push({title, blocks}), utc = t => t.slice(0, 19).replace("T", " ");
  if (r.times?.seconds > 0) {
    const kinds = Object.entries(r.times.families ?? {}).sort((a, b) => b[1] - a[1]), ms = v => fixed(1e3 * v, 2);
    const rows = kinds.map(([kind, v]) => [...cells(kind, ms(v), percent(v / r.times.seconds)), {bar: Math.max(v, 0) / Math.max(kinds[0][1], 1e-12)}]);
    add("Where the time goes", {text: "Milliseconds of a warm step by kind of work: mean over steps and ranks. Matrix products are named by format and pass."},
      {table: {head: cells("kind of work", "ms", "share", ""), rows: [...rows, cells("step", ms(r.times.seconds), "", "")]}});
  }
  if (r.events?.length) {
    const rows = r.events.map(e => [...cells(utc(e.time), e.event.replaceAll("_", " "), e.rank < 0 ? "" : e.rank, e.step < 0 ? "" : e.step),
      {class: "words", text: e.reason || (e.after_ns ? `${fixed(e.after_ns / 1e6, 1)} ms after the failure was detected` : "")}]);
    add("Alarms and failures", {table: {head: cells("time (UTC)", "event", "rank", "after step", "what"), rows}});
  }
  add("Sample", ...(r.samples ?? []).toReversed().map((s, i) => ({summary: i ? `after step ${s.step}` : "", code: s.prompt + s.text,
    note: i ? "" : `written by the model after step ${s.step}, after the prompt ${JSON.stringify(s.prompt)}`})));
  const machines = new Set((r.starts ?? []).map(s => `${machine(s)}; version ${s.version}` + (s.ranks ? `; ${plural(s.ranks, "rank")}` : "") +
    (s.peak ? `; peak ${whole(s.peak / 1e9)} GFLOP/s measured` : "")));
  const terms = [{name: "machine", texts: cells(...machines)}, {name: "resumed after steps", texts: cells(...(r.starts ?? []).slice(1).map(s => s.step))},
    {name: "not shown", texts: cells(...(r.notes ?? []))}].filter(t => t.texts.length);
  add("Setup", {terms}, ...(r.config ? [{summary: "configuration", code: r.config}] : []));
  if (r.checkpoints) {
    add("Checkpoints", {table: {head: cells("folder", "step", "written (UTC)", "size", "state"), rows: r.checkpoints.map(row => cells(...row))}});
  }
  return sections;
}
function compose({run, figures, reload}) {
  if (!reload) run.left = 0; // it may have stopped
  return {badges: badges(run), facts: facts(run), sections: [...curveSections(run, figures), ...details(run)]};
}

// The page.

function cell(c, name = "td") {
  const color = colorOf({color: 1}), style = `width:${Math.round(100 * c.bar)}px`;
  const bar = c.bar !== undefined && element("span", {class: `bar ${color}`, style});
  return element(name, {class: c.class === "words" ? "words" : "", scope: name === "th" && "col"},
    c.text, bar);
}
function block(b, id) {
  const row = (cells, name) => element("tr", {}, cells.map(c => cell(c, name)));
  const parts = [b.text && element("p", {}, b.text), b.note && element("p", {class: "note"}, b.note), b.code && element("pre", {}, b.code),
    b.table && element("div", {class: "scroll"}, element("table", {},
      element("thead", {}, row(b.table.head, "th")), element("tbody", {}, b.table.rows?.map(r => row(r))))),
    b.terms && element("dl", {}, b.terms.flatMap(t => [element("dt", {}, t.name), ...(t.texts ?? []).map(c => cell(c, "dd"))])),
    b.charts && element("div", {class: "charts"}, b.charts.map(chart))];
  if (!b.summary) return parts;
  const ontoggle = e => { if (e.target.open) view.open.add(id); else view.open.delete(id); keep(); };
  return element("details", {open: view.open.has(id) && "open", ontoggle}, element("summary", {}, b.summary), parts);
}
function toolbar(charts) {
  if (!charts.some(c => c.smooth)) return "";
  const smooth = e => { view.smooth = Number(e.target.value); keep(); redraw(); }, whole = () => { view.zoom = {}; keep(); redraw(); };
  const log = e => { view.log = e.target.checked; keep(); redraw(); };
  return element("div", {class: "tools"},
    element("label", {}, "smoothing", element("input", {type: "range", id: "smooth", min: 0, max: 60, value: view.smooth, oninput: smooth})),
    element("label", {}, element("input", {type: "checkbox", id: "log", checked: view.log, onchange: log}), "logarithmic"),
    element("button", {id: "unzoom", hidden: "hidden", onclick: whole}, "whole range"),
    element("span", {class: "note"}, "Drag over a chart to zoom; a double click returns."));
}
function render() {
  const sections = page.sections ?? [], charts = sections.flatMap(s => s.blocks).flatMap(b => b.charts ?? []);
  const first = sections.findIndex(s => s.blocks.some(b => b.charts));
  const parts = [element("h1", {}, page.title),
    page.badges && element("p", {}, page.badges.map(b => element("span", {class: `badge ${b.class ?? ""}`}, b.text))),
    page.facts && element("div", {class: "facts"}, page.facts.map(f =>
      element("div", {}, element("small", {}, f.name), element("b", {}, f.value), element("small", {}, f.more)))),
    sections.map((s, i) => [element("h2", {}, s.title), i === first && toolbar(charts),
      s.blocks.map((b, j) => block(b, `${s.title} ${j}`))])];
  main.replaceChildren(...parts.flat(Infinity).filter(Boolean));
  redraw();
}
if (page.run) Object.assign(page, compose(page));
restore();
render();
addEventListener("resize", redraw);
addEventListener("hashchange", () => { restore(); render(); });
if (page.reload) setTimeout(() => location.reload(), 1000 * page.reload);
