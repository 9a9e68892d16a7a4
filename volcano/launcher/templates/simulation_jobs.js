/* What a point of a chart says. */
function timeAt(canvas, clientX) {
  const box = canvas.getBoundingClientRect();
  return view.from + ((clientX - box.left - LEFT) / (box.width - LEFT - RIGHT)) * (view.to - view.from);
}
function teamName(index) { return data.teams[index] || "no team"; }
function count(value, noun) { return value.toLocaleString("en") + " " + noun + (value === 1 ? "" : "s"); }
function gpusSaid({ policy }, time) {
  const at = stepAt(policy.times, time), made = [element("p", clock(time))];
  policy.bands.forEach((band, index) => { if (band[at]) made.push(element("p", teamName(index) + ": " + count(band[at], "GPU"))); });
  if (policy.waiting[at]) made.push(element("p", count(policy.waiting[at], "GPU") + " asked for, waiting"));
  return made;
}
function jobSaid({ number, policy }, job, time) {
  const mine = job.under[number], span = mine.spans.find(({ from, to }) => from <= time && time <= to);
  const made = [element("p", job.name), element("p", teamName(job.team) + " · asked for " + count(job.asked, "GPU") + " · " + policy.name, "quiet")];
  made[0].style.fontWeight = 650;
  let state = "waiting for GPUs";
  if (span) state = count(span.gpus, "GPU") + " from " + clock(span.from) + " to " + clock(span.to) + (span.lost ? ", " + duration(span.lost * data.unit) + " of it not training" : "");
  else if (time < job.at) state = "not there yet: submitted at " + clock(job.at);
  else if (time >= mine.end) state = mine.ended ? "ended at " + clock(mine.end) : "never ended";
  made.push(element("p", clock(time) + ": " + state));
  made.push(element("p", "JCT " + duration(mine.jct) + " · " + count(mine.resizes, "resize") + (mine.restarts ? " · " + count(mine.restarts, "restart") : "")));
  const made_until = mine.decided.filter(({ at }) => at <= time + (view.to - view.from) / 100);
  const last = made_until[made_until.length - 1];
  if (last) made.push(element("p", decisionSaid(last)));
  return made;
}
function decisionSaid({ at, from, to, reason, why }) {
  return clock(at) + ": " + (from === to ? "stays at " + count(to, "worker") : from + " → " + count(to, "worker")) + " (" + reason + "). " + why;
}
function point(chart, canvas, event) {
  const box = canvas.getBoundingClientRect(), time = timeAt(canvas, event.clientX), y = event.clientY - box.top;
  let said = [];
  if (event.clientX - box.left >= LEFT && event.clientX < box.right - RIGHT) {
    const job = canvas === chart.jobs ? shownJobs[Math.floor(y / rowHeight(box.height))] : undefined;
    if (canvas === chart.gpus) said = gpusSaid(chart, time);
    else if (job && y < box.height - AXIS) said = jobSaid(chart, job, time);
  }
  told.hidden = !said.length;
  if (told.hidden) return;
  told.replaceChildren(...said);
  const home = section.getBoundingClientRect(), x = event.clientX - home.left;
  told.style.left = Math.max(0, Math.min(x + 14, home.width - told.offsetWidth)) + "px";
  const under = event.clientY + 18 + told.offsetHeight < window.innerHeight;
  told.style.top = event.clientY - home.top + (under ? 18 : -told.offsetHeight - 12) + "px";
}

/* Moving about: one pointer drags, two pinch. */
const held = new Map();
function follow(chart, canvas) {
  canvas.addEventListener("pointerdown", (event) => {
    held.set(event.pointerId, event.clientX);
    canvas.setPointerCapture(event.pointerId);
    canvas.dataset.at = event.clientX;
    section.focus({ preventScroll: true });
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!held.has(event.pointerId)) { if (event.pointerType === "mouse") point(chart, canvas, event); return; }
    const before = [...held.values()];
    held.set(event.pointerId, event.clientX);
    const after = [...held.values()];
    if (after.length === 1) {
      const by = timeAt(canvas, before[0]) - timeAt(canvas, after[0]);
      show(view.from + by, view.to + by);
    } else {
      const apart = (places) => Math.max(8, Math.abs(places[0] - places[1]));
      zoom(apart(before) / apart(after), timeAt(canvas, (after[0] + after[1]) / 2));
    }
    told.hidden = true;
  });
  const let_go = (event) => {
    const tapped = held.size === 1 && Math.abs(event.clientX - Number(canvas.dataset.at)) < 5;
    held.delete(event.pointerId);
    if (tapped && event.type === "pointerup") point(chart, canvas, event);
  };
  canvas.addEventListener("pointerup", let_go);
  canvas.addEventListener("pointercancel", let_go);
  canvas.addEventListener("pointerleave", (event) => { if (event.pointerType === "mouse") told.hidden = true; });
  canvas.addEventListener("wheel", (event) => {
    const out = event.deltaY > 0, all = view.to - view.from >= whole;
    if (!(event.ctrlKey || event.metaKey || section.contains(document.activeElement)) || (out && all)) return;
    event.preventDefault();
    zoom(Math.exp(Math.max(-1, Math.min(1, event.deltaY / 300))), timeAt(canvas, event.clientX));
  }, { passive: false });
  canvas.addEventListener("dblclick", (event) => zoom(0.5, timeAt(canvas, event.clientX)));
}
for (const chart of charts) for (const canvas of [chart.gpus, chart.jobs]) follow(chart, canvas);
const ACTIONS = { in: () => zoom(0.5), out: () => zoom(2), back: () => pan(-0.25), on: () => pan(0.25), all: () => show(0, whole) };
const KEYS = { "+": "in", "=": "in", "-": "out", ArrowLeft: "back", ArrowRight: "on", 0: "all", Home: "all" };
section.addEventListener("click", (event) => { const act = event.target.dataset && ACTIONS[event.target.dataset.do]; if (act) act(); });
section.addEventListener("keydown", (event) => {
  if (event.key === "Escape") told.hidden = true;
  const act = !event.ctrlKey && !event.metaKey && !event.altKey && ACTIONS[KEYS[event.key]];
  if (act) { event.preventDefault(); act(); }
});

/* The list of jobs. */
const PAGE = 50, body = document.querySelector("#list tbody"), more = document.getElementById("more"), find = document.getElementById("find");
let order = { key: "at", policy: 0, up: true }, listed = PAGE;
function by(job, number) { const [a, b] = [job.under[0].jct, job.under[number].jct]; return a === null || b === null ? null : b - a; }
const VALUES = {
  name: (job) => job.name, team: (job) => teamName(job.team), asked: (job) => job.asked, at: (job) => job.at,
  jct: (job, policy) => job.under[policy].jct, by,
};
function sorted(found) {
  const value = VALUES[order.key], sign = order.up ? 1 : -1;
  return found.map((job) => [value(job, order.policy), job]).sort(([a, one], [b, other]) => {
    if (a === null || b === null) return (a === null) - (b === null) || one.index - other.index;
    const less = typeof a === "string" ? a.localeCompare(b, "en", { numeric: true }) : a - b;
    return sign * less || one.index - other.index;
  }).map(([, job]) => job);
}
function line(job) {
  const row = document.createElement("tr"), head = element("th"), open = element("button", job.name);
  head.scope = "row";
  open.type = "button";
  open.setAttribute("aria-expanded", "false");
  open.addEventListener("click", () => unfold(job, row, open));
  head.append(open);
  row.append(head, element("td", teamName(job.team)), element("td", job.asked.toLocaleString("en"), "n"), element("td", clock(job.at), "n"));
  job.under.forEach((mine, number) => {
    row.append(element("td", mine.ended ? duration(mine.jct) : "not ended", "n" + (mine.ended ? "" : " none")));
    if (!number) return;
    const less = by(job, number);
    row.append(element("td", less === null ? "–" : (less > 0 ? "+" : "") + (less === 0 ? "same" : duration(less)), "n" + (less ? (less < 0 ? " good" : " bad") : " none")));
  });
  return row;
}
function unfold(job, row, open) {
  const there = row.nextSibling && row.nextSibling.className === "more-of-it";
  open.setAttribute("aria-expanded", String(!there));
  if (there) { row.nextSibling.remove(); return; }
  const added = element("tr", undefined, "more-of-it"), cell = element("td"), box = element("div");
  cell.colSpan = row.cells.length;
  job.under.forEach((mine, number) => {
    box.append(element("strong", data.policies[number].name));
    const list = element("ul");
    const sizes = mine.spans.slice(0, 40).map(({ from, to, gpus }) => clock(from) + "–" + clock(to) + ": " + gpus);
    list.append(element("li", sizes.length ? "GPUs: " + sizes.join("; ") + (mine.spans.length > sizes.length ? "; …" : "") : "It never had GPUs."));
    for (const each of mine.decided) list.append(element("li", decisionSaid(each)));
    box.append(list);
  });
  const go = element("button", "Show in the charts");
  go.type = "button";
  go.addEventListener("click", () => {
    const room = Math.max(1, job.last - job.at) * 0.1;
    show(job.at - room, job.last + room);
    section.scrollIntoView();
  });
  box.append(go);
  cell.append(box);
  added.append(cell);
  row.after(added);
}
function list() {
  const text = find.value.trim().toLowerCase();
  const found = sorted(text ? jobs.filter((job) => (job.name + " " + teamName(job.team)).toLowerCase().includes(text)) : jobs);
  body.replaceChildren(...found.slice(0, listed).map(line));
  more.hidden = found.length <= listed;
  document.getElementById("found").textContent = Math.min(listed, found.length) + " of " + count(found.length, "job");
  for (const button of document.querySelectorAll("#list thead button")) {
    const mine = button.dataset.key === order.key && Number(button.dataset.policy || 0) === order.policy;
    if (mine) button.parentNode.setAttribute("aria-sort", order.up ? "ascending" : "descending");
    else button.parentNode.removeAttribute("aria-sort");
  }
}
document.querySelector("#list thead").addEventListener("click", ({ target }) => {
  if (!target.dataset.key) return;
  const policy = Number(target.dataset.policy || 0);
  order = { key: target.dataset.key, policy, up: order.key === target.dataset.key && order.policy === policy ? !order.up : true };
  list();
});
find.addEventListener("input", () => { listed = PAGE; list(); });
more.addEventListener("click", () => { listed += 4 * PAGE; list(); });
window.addEventListener("resize", redraw);
for (const query of ["(prefers-color-scheme: dark)", "print"]) matchMedia(query).addEventListener("change", draw);
draw();
list();
