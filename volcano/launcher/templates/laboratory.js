"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const names = ["blue", "orange", "green", "purple", "sky", "vermilion"];
  const end = Math.max(data.end, 1);
  const view = { from: 0, to: end };
  const left = 40, right = 8, foot = 22;
  const root = document.documentElement;
  const tip = document.getElementById("tip");
  const lanes = document.getElementById("lanes");
  const chosen = document.getElementById("policy");
  const held = [...document.querySelectorAll("canvas.held")];
  const canvases = [...held, lanes];
  const row = Math.max(5, Math.min(16, 2400 / Math.max(1, data.lanes.length)));
  lanes.style.height = `${row * data.lanes.length + foot + 4}px`;

  const colour = (name) => getComputedStyle(root).getPropertyValue(`--${name}`).trim();
  const teamColour = (team) => colour(names[team % names.length]);
  const two = (value) => String(value).padStart(2, "0");
  const seconds = (value) => {
    if (value === null) return "did not end";
    const whole = Math.round(value);
    if (whole < 120) return `${Math.round(value * 10) / 10} s`;
    if (whole < 3600) return `${Math.floor(whole / 60)} min ${two(whole % 60)} s`;
    const minutes = Math.round(whole / 60);
    return `${Math.floor(minutes / 60)} h ${two(minutes % 60)} min`;
  };
  const moment = (value) => {
    const whole = Math.round(value), days = Math.floor(whole / 86400), rest = whole % 86400;
    return `${days ? `${days} d ` : ""}${Math.floor(rest / 3600)}:${two(Math.floor(rest / 60) % 60)}${view.to - view.from < 3600 ? `:${two(rest % 60)}` : ""}`;
  };

  const prepare = (canvas) => {
    const ratio = Math.max(2, window.devicePixelRatio || 1);
    const { width, height } = canvas.getBoundingClientRect();
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    const pen = canvas.getContext("2d");
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, width, height);
    pen.font = "12px system-ui, sans-serif";
    return { pen, width, height, x: (at) => left + ((at - view.from) / (view.to - view.from)) * (width - left - right) };
  };

  const STEPS = [1, 5, 10, 30, 60, 300, 600, 1800, 3600, 7200, 14400, 28800, 43200, 86400, 172800, 604800, 2592000];
  const axis = ({ pen, width, height, x }, floor) => {
    const room = Math.max(2, Math.floor((width - left - right) / 90));
    const step = STEPS.find((each) => (view.to - view.from) / each <= room) || STEPS[STEPS.length - 1];
    pen.fillStyle = pen.strokeStyle = colour("muted");
    pen.textAlign = "center";
    pen.textBaseline = "top";
    pen.lineWidth = 1;
    pen.beginPath();
    pen.moveTo(left, floor + 0.5);
    pen.lineTo(width - right, floor + 0.5);
    for (let at = Math.ceil(view.from / step) * step; at <= view.to; at += step) {
      const place = x(at);
      pen.moveTo(place, floor);
      pen.lineTo(place, floor + 4);
      if (place > left + 12 && place < width - right - 12) pen.fillText(moment(at), place, floor + 6);
    }
    pen.stroke();
  };

  const first = (times, at) => {
    let low = 0, high = times.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (times[middle] <= at) low = middle + 1; else high = middle;
    }
    return Math.max(0, low - 1);
  };

  const drawHeld = (canvas) => {
    const one = data.policies[canvas.dataset.policy], place = prepare(canvas), { pen, width, height, x } = place;
    const floor = height - foot, y = (gpus) => floor - (gpus / Math.max(1, data.gpus)) * (floor - 8);
    pen.strokeStyle = colour("grid");
    pen.fillStyle = colour("muted");
    pen.textAlign = "right";
    pen.textBaseline = "middle";
    for (const gpus of [data.gpus / 2, data.gpus]) {
      pen.beginPath();
      pen.moveTo(left, y(gpus));
      pen.lineTo(width - right, y(gpus));
      pen.stroke();
      pen.fillText(String(Math.round(gpus)), left - 6, y(gpus));
    }
    pen.save();
    pen.beginPath();
    pen.rect(left, 0, width - left - right, height);
    pen.clip();
    const begin = first(one.times, view.from);
    const base = new Float64Array(one.times.length);
    one.held.forEach((counts, team) => {
      pen.fillStyle = teamColour(team);
      for (let index = begin; index + 1 < one.times.length && one.times[index] < view.to; index += 1) {
        if (!counts[index]) continue;
        const low = x(one.times[index]), high = x(one.times[index + 1]);
        pen.fillRect(low, y(base[index] + counts[index]), Math.max(0.5, high - low + 0.3), y(base[index]) - y(base[index] + counts[index]));
        base[index] += counts[index];
      }
    });
    pen.restore();
    axis(place, floor);
  };

  const drawLanes = () => {
    const one = data.policies[chosen.value], place = prepare(lanes), { pen, width, height, x } = place;
    pen.save();
    pen.beginPath();
    pen.rect(left, 0, width - left - right, height);
    pen.clip();
    const ink = colour("ink"), muted = colour("muted");
    data.lanes.forEach((job, lane) => {
      const middle = lane * row + row / 2, spans = one.spans[lane];
      const most = Math.max(job[3], ...spans.map((span) => span[2]));
      const last = one.ends[lane] === null ? end : one.ends[lane];
      if (job[4] > view.to || last < view.from) return;
      pen.fillStyle = muted;
      pen.fillRect(x(job[4]), middle - 0.5, Math.max(1, x(last) - x(job[4])), 1);
      for (const [from, to, gpus, lost] of spans) {
        if (to < view.from || from > view.to) continue;
        const tall = Math.max(2, (row - 1) * (0.3 + 0.7 * (gpus / most)));
        pen.fillStyle = teamColour(job[2]);
        pen.fillRect(x(from), middle - tall / 2, Math.max(1, x(to) - x(from)), tall);
        if (lost) {
          pen.globalAlpha = 0.55;
          pen.fillStyle = ink;
          pen.fillRect(x(from), middle - tall / 2, x(Math.min(to, from + lost)) - x(from), tall);
          pen.globalAlpha = 1;
        }
      }
    });
    pen.restore();
    axis(place, row * data.lanes.length + 2);
  };

  let asked = 0;
  const draw = () => {
    asked = 0;
    document.getElementById("window").textContent = `${moment(view.from)} to ${moment(view.to)}`;
    held.forEach(drawHeld);
    drawLanes();
  };
  const redraw = () => { asked = asked || requestAnimationFrame(draw); };

  const show = (from, to) => {
    const wide = Math.min(end, Math.max(Math.min(10, end), to - from));
    view.from = Math.min(Math.max(0, from), end - wide);
    view.to = view.from + wide;
    redraw();
  };
  const zoom = (by, about) => show(about - (about - view.from) * by, about + (view.to - about) * by);
  const acts = {
    in: () => zoom(0.5, (view.from + view.to) / 2),
    out: () => zoom(2, (view.from + view.to) / 2),
    left: () => show(view.from - (view.to - view.from) / 4, view.to - (view.to - view.from) / 4),
    right: () => show(view.from + (view.to - view.from) / 4, view.to + (view.to - view.from) / 4),
    all: () => show(0, end),
  };
  const keys = { "+": "in", "=": "in", "-": "out", ArrowLeft: "left", ArrowRight: "right", 0: "all", Home: "all" };
  document.querySelectorAll("[data-act]").forEach((button) => button.addEventListener("click", acts[button.dataset.act]));

  const timeAt = (canvas, clientX) => {
    const box = canvas.getBoundingClientRect();
    return view.from + ((clientX - box.left - left) / (box.width - left - right)) * (view.to - view.from);
  };

  const say = (text, event) => {
    tip.hidden = !text;
    if (!text) return;
    tip.textContent = text;
    const wide = tip.offsetWidth, tall = tip.offsetHeight;
    tip.style.left = `${Math.max(8, Math.min(event.clientX + 12, window.innerWidth - wide - 8))}px`;
    tip.style.top = `${event.clientY + tall + 24 > window.innerHeight ? Math.max(8, event.clientY - tall - 12) : event.clientY + 14}px`;
  };

  const tellHeld = (canvas, event) => {
    const one = data.policies[canvas.dataset.policy], at = timeAt(canvas, event.clientX);
    if (at < view.from || at > view.to) return "";
    const index = first(one.times, at);
    const parts = data.teams.map((team, place) => [team, one.held[place][index]]).filter(([, gpus]) => gpus);
    const all = parts.reduce((sum, [, gpus]) => sum + gpus, 0);
    return [`${moment(at)}: ${Math.round(all * 10) / 10} of ${data.gpus} GPUs`, ...parts.map(([team, gpus]) => `${team}: ${Math.round(gpus * 10) / 10}`)].join("\n");
  };

  const tellLane = (event) => {
    const one = data.policies[chosen.value], at = timeAt(lanes, event.clientX);
    const lane = Math.floor((event.clientY - lanes.getBoundingClientRect().top) / row), job = data.lanes[lane];
    if (!job || at < view.from || at > view.to) return "";
    const span = one.spans[lane].find(([from, to]) => from <= at && at <= to), policy = Number(chosen.value);
    const told = [`${job[0]} of ${job[1]}, asks for ${job[3]} GPUs`, `submitted ${moment(job[4])}, completion time ${seconds(job[5][policy])}`];
    told.push(span ? `${moment(at)}: ${span[2]} GPUs since ${moment(span[0])}` : at < job[4] ? "not submitted yet" : one.ends[lane] !== null && at > one.ends[lane] ? "has ended" : `${moment(at)}: waits`);
    const why = one.decided.filter((each) => each[0] === lane && each[1] <= at + (view.to - view.from) / 500).pop();
    if (why) told.push(`${moment(why[1])}: ${why[2] === why[3] ? `stays at ${why[2]}` : `${why[2]} → ${why[3]}`} workers. ${one.texts[why[4]]}`);
    return told.join("\n");
  };

  for (const canvas of canvases) {
    const pointers = new Map();
    let begun = null;
    const tell = (event) => say(canvas === lanes ? tellLane(event) : tellHeld(canvas, event), event);
    canvas.addEventListener("pointerdown", (event) => {
      pointers.set(event.pointerId, event.clientX);
      canvas.setPointerCapture(event.pointerId);
      begun = { ...view, at: [...pointers.values()] };
      tell(event);
    });
    canvas.addEventListener("pointermove", (event) => {
      if (!pointers.has(event.pointerId)) { tell(event); return; }
      pointers.set(event.pointerId, event.clientX);
      const now = [...pointers.values()], width = canvas.getBoundingClientRect().width - left - right;
      const scale = (begun.to - begun.from) / width;
      if (now.length === 1) {
        const moved = (begun.at[0] - now[0]) * scale;
        if (Math.abs(begun.at[0] - now[0]) > 3) { say(""); show(begun.from + moved, begun.to + moved); }
      } else if (now.length === 2) {
        const before = Math.max(20, Math.abs(begun.at[0] - begun.at[1])), after = Math.max(20, Math.abs(now[0] - now[1]));
        const box = canvas.getBoundingClientRect(), about = begun.from + ((begun.at[0] + begun.at[1]) / 2 - box.left - left) * scale;
        say("");
        show(about - (about - begun.from) * (before / after), about + (begun.to - about) * (before / after));
      }
    });
    const over = (event) => {
      pointers.delete(event.pointerId);
      begun = { ...view, at: [...pointers.values()] };
    };
    canvas.addEventListener("pointerup", over);
    canvas.addEventListener("pointercancel", over);
    canvas.addEventListener("pointerleave", () => say(""));
    canvas.addEventListener("dblclick", (event) => zoom(0.5, timeAt(canvas, event.clientX)));
    canvas.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      zoom(event.deltaY > 0 ? 1.25 : 0.8, timeAt(canvas, event.clientX));
    }, { passive: false });
    canvas.addEventListener("keydown", (event) => {
      const act = keys[event.key];
      if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      acts[act]();
    });
  }
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") say(""); });
  document.addEventListener("scroll", () => say(""), { passive: true, capture: true });
  chosen.addEventListener("change", redraw);
  window.addEventListener("resize", redraw);
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  window.addEventListener("beforeprint", () => { root.classList.add("printing"); draw(); });
  window.addEventListener("afterprint", () => { root.classList.remove("printing"); draw(); });

  const several = data.policies.length > 1;
  const columns = [
    ["Job", (job) => job[0]], ["Team", (job) => job[1]], ["GPUs", (job) => job[3]], ["Submitted", (job) => job[4], moment],
    ...data.policies.map((one, place) => [several ? `JCT, ${one.name}` : "JCT", (job) => job[5][place], seconds]),
    ...data.policies.map((one, place) => [several ? `Waited, ${one.name}` : "Waited", (job) => job[6][place], (value) => (value === null ? "never ran" : seconds(value))]),
    ...data.policies.map((one, place) => [several ? `Resizes, ${one.name}` : "Resizes", (job) => job[7][place]]),
  ];
  const PART = 50, sorted = { column: 3, up: true };
  let count = PART;
  const head = document.querySelector("#table thead"), body = document.querySelector("#table tbody");
  const find = document.getElementById("find"), more = document.getElementById("more");
  const fill = () => {
    const wanted = find.value.trim().toLowerCase(), value = columns[sorted.column][1], sign = sorted.up ? 1 : -1;
    const found = data.rows.filter((job) => !wanted || job[0].toLowerCase().includes(wanted) || job[1].toLowerCase().includes(wanted));
    const large = (each) => (each === null ? Infinity : each);
    found.sort((one, other) => {
      const a = large(value(one)), b = large(value(other));
      return sign * (typeof a === "string" ? a.localeCompare(b, "en", { numeric: true }) : a === b ? 0 : a - b);
    });
    body.replaceChildren(...found.slice(0, count).map((job) => {
      const line = document.createElement("tr");
      columns.forEach(([, read, tell], place) => {
        const cell = document.createElement(place ? "td" : "th");
        if (!place) cell.scope = "row";
        cell.textContent = tell ? tell(read(job)) : read(job);
        if (place > 1) cell.className = "n";
        line.append(cell);
      });
      return line;
    }));
    document.getElementById("count").textContent = `${Math.min(count, found.length)} of ${found.length} jobs`;
    more.hidden = found.length <= count;
    [...head.rows[0].cells].forEach((cell, place) => cell.setAttribute("aria-sort", place === sorted.column ? (sorted.up ? "ascending" : "descending") : "none"));
  };
  const line = document.createElement("tr");
  columns.forEach(([title], place) => {
    const cell = document.createElement("th"), button = document.createElement("button");
    cell.scope = "col";
    if (place > 1) cell.className = "n";
    button.type = "button";
    button.textContent = title;
    button.addEventListener("click", () => {
      sorted.up = sorted.column === place ? !sorted.up : true;
      sorted.column = place;
      fill();
    });
    cell.append(button);
    line.append(cell);
  });
  head.append(line);
  find.addEventListener("input", () => { count = PART; fill(); });
  more.addEventListener("click", () => { count += PART; fill(); });
  fill();
  draw();
})();
