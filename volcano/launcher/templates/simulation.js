"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const COLOURS = ["blue", "orange", "green", "purple", "sky", "vermilion", "muted"];
const LEFT = 40, RIGHT = 8, AXIS = 20, HIGHEST_ROW = 20, HIGHEST_BACKLOG = 3;

/* Each job with what became of it under each policy; times in units of data.unit seconds. */
const jobs = data.jobs.map(([name, team, at, asked], index) => {
  const under = data.policies.map((policy) => {
    const [jct, end, resizes, restarts, flat] = policy.jobs[index];
    const spans = [];
    for (let i = 0; i < flat.length; i += 4) spans.push({ from: flat[i], to: flat[i + 1], gpus: flat[i + 2], lost: flat[i + 3] });
    return { jct, end: end === null ? policy.end : end, ended: end !== null, resizes, restarts, spans, decided: [] };
  });
  let most = 1;
  for (const one of under) for (const span of one.spans) most = Math.max(most, span.gpus);
  return { index, name, team, at, asked, under, most, last: Math.max(at, ...under.map((one) => one.end)) };
});
data.policies.forEach((policy, number) => {
  for (const [at, job, from, to, reason, why] of policy.decided)
    jobs[job].under[number].decided.push({ at, from, to, reason: data.texts[reason], why: data.texts[why] });
});

function duration(seconds) {
  if (seconds === null) return "–";
  if (seconds < 0) return "−" + duration(-seconds);
  if (seconds < 10) return seconds.toFixed(seconds < 1 ? 2 : 1) + " s";
  const whole = Math.round(seconds), two = (value) => String(value).padStart(2, "0");
  if (whole < 120) return whole + " s";
  if (whole < 3600) return Math.floor(whole / 60) + " min " + two(whole % 60) + " s";
  const minutes = Math.round(seconds / 60);
  return Math.floor(minutes / 60) + " h " + two(minutes % 60) + " min";
}
function clock(units) {
  const whole = Math.round(units * data.unit), days = Math.floor(whole / 86400), two = (value) => String(value).padStart(2, "0");
  const hours = Math.floor(whole / 3600) % 24, text = hours + ":" + two(Math.floor(whole / 60) % 60);
  if (days) return days + "d " + text;
  return text + ":" + two(whole % 60);
}
function element(tag, text, kind) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (kind) made.className = kind;
  return made;
}

/* What is shown of the time, for all charts alike. */
const whole = Math.max(1, data.end), narrowest = Math.min(whole, Math.max(20, whole / 20000));
let view = { from: 0, to: whole }, shownJobs = [], due = 0, colours = {};
function show(from, to) {
  const wide = Math.min(whole, Math.max(narrowest, to - from));
  const begin = Math.min(Math.max(0, from + (to - from - wide) / 2), whole - wide);
  view = { from: begin, to: begin + wide };
  redraw();
}
function zoom(factor, at) {
  const middle = at === undefined ? (view.from + view.to) / 2 : at;
  show(middle - (middle - view.from) * factor, middle + (view.to - middle) * factor);
}
function pan(part) { const by = (view.to - view.from) * part; show(view.from + by, view.to + by); }
function redraw() { if (!due) due = requestAnimationFrame(() => { due = 0; draw(); }); }

const section = document.getElementById("timelines"), told = document.getElementById("told");
const charts = [...section.querySelectorAll("figure.policy")].map((figure, number) => ({
  number, policy: data.policies[number], gpus: figure.querySelector(".gpus"), jobs: figure.querySelector(".jobs"),
}));
for (const chart of charts) chart.jobs.style.height = Math.min(300, Math.max(60, jobs.length * 14)) + AXIS + "px";
const highest = charts.reduce((high, { policy }) => {
  const sums = policy.times.map((_, i) => policy.bands.reduce((sum, band) => sum + band[i], policy.waiting[i]));
  return sums.reduce((a, b) => Math.max(a, b), high);
}, data.gpus);
const top_ = Math.max(1, Math.min(highest, data.gpus * HIGHEST_BACKLOG));

/* A canvas in CSS pixels, cleared. */
function paper(canvas) {
  const box = canvas.getBoundingClientRect(), ratio = window.devicePixelRatio || 1;
  canvas.width = Math.round(box.width * ratio);
  canvas.height = Math.round(box.height * ratio);
  const pen = canvas.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.font = "11px " + getComputedStyle(document.body).fontFamily;
  const inner = box.width - LEFT - RIGHT, scale = inner / (view.to - view.from);
  return { pen, width: box.width, height: box.height, x: (time) => LEFT + (time - view.from) * scale };
}
function inside({ pen, width, height }, body) {
  pen.save();
  pen.beginPath();
  pen.rect(LEFT, 0, width - LEFT - RIGHT, height);
  pen.clip();
  body();
  pen.restore();
}
function ticks(width) {
  const steps = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 432000, 864000];
  const most = Math.max(2, Math.floor(width / 90)), seconds = (view.to - view.from) * data.unit;
  let step = steps.find((each) => seconds / each <= most);
  if (!step) step = 86400 * Math.ceil(seconds / most / 86400);
  const found = [];
  for (let at = Math.ceil((view.from * data.unit) / step) * step; at <= view.to * data.unit; at += step) found.push(at / data.unit);
  return found;
}
function grid(sheet, labelled) {
  const { pen, width, height, x } = sheet;
  pen.textAlign = "center";
  for (const at of ticks(width - LEFT)) {
    pen.fillStyle = colours.grid;
    pen.fillRect(Math.round(x(at)), 0, 1, height - (labelled ? AXIS : 0));
    pen.fillStyle = colours.muted;
    if (labelled && x(at) > LEFT - 1 && x(at) < width - 14) pen.fillText(clock(at), Math.max(LEFT, x(at)), height - 6);
  }
}

/* The first index whose time is after, less one: the step that holds then. */
function stepAt(times, time) {
  let low = 0, high = times.length;
  while (low < high) { const middle = (low + high) >> 1; if (times[middle] <= time) low = middle + 1; else high = middle; }
  return low - 1;
}
function drawGpus({ policy, gpus }) {
  const sheet = paper(gpus), { pen, width, height, x } = sheet, base = height - 4, room = base - 8;
  const y = (value) => base - (Math.min(value, top_) / top_) * room;
  grid(sheet, false);
  const first = Math.max(0, stepAt(policy.times, view.from)), last = stepAt(policy.times, view.to);
  inside(sheet, () => {
    const below = new Float64Array(Math.max(0, last - first + 1));
    const layer = (values, fill) => {
      pen.beginPath();
      for (let i = first; i <= last; i++) {
        if (!values[i]) { below[i - first] += values[i]; continue; }
        const left = x(policy.times[i]), right = x(i + 1 < policy.times.length ? policy.times[i + 1] : policy.times[i]);
        const low = y(below[i - first]), high = y((below[i - first] += values[i]));
        pen.rect(left, high, Math.max(0.4, right - left + 0.3), low - high);
      }
      pen.fillStyle = fill;
      pen.fill();
    };
    policy.bands.forEach((band, index) => layer(band, colours[COLOURS[index]]));
    layer(policy.waiting, hatch(pen));
    pen.strokeStyle = colours.ink;
    pen.lineWidth = 1.5;
    pen.setLineDash([5, 3]);
    pen.beginPath();
    pen.moveTo(LEFT, y(data.gpus));
    pen.lineTo(width, y(data.gpus));
    pen.stroke();
  });
  pen.fillStyle = colours.muted;
  pen.textAlign = "right";
  pen.fillText("0", LEFT - 6, base);
  pen.fillText(data.gpus.toLocaleString("en"), LEFT - 6, y(data.gpus) + 4);
  if (top_ > data.gpus * 1.35) pen.fillText((highest > top_ ? "≥" : "") + Math.round(top_).toLocaleString("en"), LEFT - 6, y(top_) + 8);
}
function hatch(pen) {
  const tile = document.createElement("canvas");
  tile.width = tile.height = 6;
  const line = tile.getContext("2d");
  line.strokeStyle = colours.muted;
  line.lineWidth = 1;
  line.beginPath();
  for (const by of [-6, 0, 6]) { line.moveTo(by, 6); line.lineTo(by + 6, 0); }
  line.stroke();
  return pen.createPattern(tile, "repeat");
}
function rowHeight(height) { return Math.min(HIGHEST_ROW, (height - AXIS) / Math.max(1, shownJobs.length)); }
function drawJobs({ number, jobs: canvas }) {
  const sheet = paper(canvas), { pen, width, height, x } = sheet, row = rowHeight(height);
  grid(sheet, true);
  inside(sheet, () => shownJobs.forEach((job, index) => drawJob(sheet, job, job.under[number], index * row, row, width)));
  pen.save();
  pen.fillStyle = colours.muted;
  pen.textAlign = "center";
  pen.translate(12, (height - AXIS) / 2);
  pen.rotate(-Math.PI / 2);
  pen.fillText(shownJobs.length.toLocaleString("en") + (shownJobs.length === 1 ? " job" : " jobs"), 0, 0);
  pen.restore();
}
function drawJob({ pen, x }, job, mine, y, row, width) {
  const gap = row >= 5 ? 1 : 0, room = row - gap, left = x(job.at), right = x(mine.end);
  if (row >= 2) {
    pen.fillStyle = colours.muted;
    pen.globalAlpha = 0.55;
    pen.fillRect(left, y + room / 2 - 0.5, Math.max(0, right - left), 1);
    pen.globalAlpha = 1;
  }
  for (const { from, to, gpus, lost } of mine.spans) {
    if (to < view.from || from > view.to) continue;
    const high = room * (row < 5 ? 1 : 0.3 + 0.7 * gpus / job.most), begin = x(from), long = Math.max(0.6, x(to) - begin);
    pen.fillStyle = colours[COLOURS[job.team]];
    pen.fillRect(begin, y + room - high, long, Math.max(0.5, high));
    if (lost && row >= 3) {
      pen.fillStyle = colours.ink;
      pen.globalAlpha = 0.5;
      pen.fillRect(begin, y + room - high, Math.min(long, x(from + lost) - begin), high);
      pen.globalAlpha = 1;
    }
    const seen = Math.max(begin, LEFT);
    if (row >= 12 && high >= 10 && begin + long - seen > pen.measureText(gpus).width + 6) {
      pen.fillStyle = "#000";
      pen.textAlign = "left";
      pen.fillText(gpus, seen + 3, y + room - 3);
    }
  }
  if (row >= 6) {
    pen.fillStyle = colours.ink;
    for (const { at } of mine.decided) { pen.beginPath(); pen.arc(x(at), y + 2.5, 2, 0, 7); pen.fill(); }
  }
  if (row >= 12 && right + 6 + pen.measureText(job.name).width < width - RIGHT) {
    pen.fillStyle = colours.muted;
    pen.textAlign = "left";
    pen.fillText(job.name, right + 5, y + room - 4);
  }
}
function draw() {
  const style = getComputedStyle(document.documentElement);
  for (const name of [...COLOURS, "ink", "grid", "surface"]) colours[name] = style.getPropertyValue("--" + name).trim();
  shownJobs = jobs.filter((job) => job.at <= view.to && job.last >= view.from);
  for (const chart of charts) { drawGpus(chart); drawJobs(chart); }
  section.querySelector(".range").textContent = clock(view.from) + " to " + clock(view.to);
}
