// What the console adds to pages that work without it: rows that stay up to date, keys, relative times, files that are dropped.
const body = document.body;
document.documentElement.classList.add("js");

// The server's own pages are the only HTML that is ever parsed here, and this policy the only way to it.
const policy = window.trustedTypes ? trustedTypes.createPolicy("millweir-page", { createHTML: (text) => text }) : { createHTML: (text) => text };

// parse makes nodes of a page of ours. They are in no document yet: nothing is loaded and nothing runs.
function parse(text) {
  const box = document.createElement("template");
  box.innerHTML = policy.createHTML(text);
  return box.content;
}

// Times, in the same words as the server's.
function span(ms) {
  const s = ms / 1000;
  if (s < 10) return s.toFixed(1) + " s";
  if (s < 60) return Math.floor(s) + " s";
  if (s < 3600) return Math.floor(s / 60) + " min";
  if (s < 172800) return Math.floor(s / 3600) + " h " + String(Math.floor(s / 60) % 60).padStart(2, "0") + " min";
  return body.dataset.days.replace("%s", Math.floor(s / 86400));
}
function tell(root) {
  if ("utc" in body.dataset) return;
  const now = Date.now();
  for (const t of root.querySelectorAll("time[datetime]")) {
    const at = Date.parse(t.dateTime), ms = now - at;
    if (Number.isNaN(at)) continue;
    t.textContent = Math.abs(ms) < 1000 ? body.dataset.now : ms < 0 ? body.dataset.in.replace("%s", span(-ms)) : body.dataset.ago.replace("%s", span(ms));
    if (!t.dataset.local) { t.title += "\n" + new Date(at).toLocaleString(document.documentElement.lang); t.dataset.local = "1"; }
  }
}

// Rows that stay up to date: the page is asked for again, and the part with the same id is put in the place of the old one.
let ended = false, asking = false, again = false;
function busy(part) {
  return part.contains(document.activeElement) && document.activeElement.matches("input, select, textarea, button, summary") ||
    part.querySelector("input:checked, details.sure[open]") !== null || String(getSelection()) !== "";
}
async function refresh() {
  if (ended) return;
  if (asking) { again = true; return; } // what is being asked for may be older
  asking = true;
  try {
    const res = await fetch(location.href, { headers: { Accept: "text/html" }, credentials: "same-origin" });
    if (res.redirected && new URL(res.url).pathname.endsWith("/login")) { sessionEnded(); return; }
    if (!res.ok) return;
    const fresh = parse(await res.text());
    for (const old of document.querySelectorAll("[data-live][id]")) {
      const next = fresh.getElementById(old.id);
      if (!next || busy(old)) continue;
      tell(next);
      if (old.innerHTML === next.innerHTML) continue;
      const open = [...old.querySelectorAll("details")].map((d) => d.open);
      const place = rows().indexOf(document.activeElement);
      const node = document.importNode(next, true);
      node.querySelectorAll("details").forEach((d, i) => { d.open = open[i] || d.open; });
      old.replaceWith(node);
      mark();
      if (place >= 0) rows()[place]?.focus();
    }
  } catch { /* the server is away: what is shown stays, and the next look tries again */ } finally {
    asking = false;
    if (again) { again = false; refresh(); }
  }
}
function sessionEnded() {
  ended = true;
  const note = document.createElement("p"), link = document.createElement("a");
  note.className = "note warn";
  note.setAttribute("role", "alert");
  const back = new URLSearchParams({ ended: "1", next: location.pathname.slice(location.pathname.indexOf("/console") + 8) + location.search });
  link.href = body.dataset.login + "?" + back;
  link.textContent = body.dataset.ended;
  note.append("! ", link);
  document.getElementById("notes").replaceChildren(note);
}

// One stream of events for a browser: HTTP/1.1 has six connections. The tab that holds the lock streams and tells the others of every
// change; those that show the same task wait for its word, all others ask now and then as well. When it goes, the next one has the lock.
function follow() {
  const part = () => document.querySelector("[data-live]:not([data-live=''])");
  const address = part()?.dataset.live;
  if (!address) return;
  let timer = 0, soon = 0, leads = false;
  const poll = (on) => { clearInterval(timer); timer = on ? setInterval(() => { if (!document.hidden) refresh(); }, 4000) : 0; };
  const changed = () => { clearTimeout(soon); soon = setTimeout(refresh, 150); };
  poll(true);
  if (!navigator.locks || !window.BroadcastChannel) return;
  const name = "millweir-events " + body.dataset.login, tabs = new BroadcastChannel(name);
  tabs.addEventListener("message", ({ data }) => {
    if (data.asks && leads) tabs.postMessage({ leads: address });
    if ("leads" in data) {
      if (timer && data.leads === address) changed(); // what was told before this page listened
      poll(data.leads !== address);
    }
    if (data.changed) changed();
  });
  if (address === "poll") return;
  tabs.postMessage({ asks: true });
  navigator.locks.request(name, () => part()?.dataset.live === address && new Promise((release) => {
    const events = new EventSource(address);
    const end = (over) => { leads = false; events.close(); tabs.postMessage({ leads: "" }); poll(!over); release(); };
    leads = true;
    poll(false);
    tabs.postMessage({ leads: address });
    events.addEventListener("status", (event) => {
      changed();
      tabs.postMessage({ changed: address });
      if (["SUCCEEDED", "DEAD", "CANCELLED"].includes(JSON.parse(event.data).status)) end(true);
    });
    events.addEventListener("error", () => { if (events.readyState === EventSource.CLOSED) { changed(); end(false); } });
    addEventListener("pagehide", () => end(true));
  }));
}

// Keys.
const rows = () => [...document.querySelectorAll("[data-row]")];
function mark() {
  for (const row of rows()) row.tabIndex = -1;
  for (const box of document.querySelectorAll(".table")) { // what scrolls can be scrolled by keys
    if (box.scrollWidth > box.clientWidth) box.tabIndex = 0; else box.removeAttribute("tabindex");
  }
}
function step(by) {
  const all = rows();
  if (!all.length) return;
  const at = all.findIndex((row) => row.contains(document.activeElement));
  all[at < 0 ? (by > 0 ? 0 : all.length - 1) : Math.min(Math.max(at + by, 0), all.length - 1)].focus();
}
addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input:not([type=checkbox]), select, textarea, dialog")) return;
  const row = event.target.closest("[data-row]");
  switch (event.key) {
    case "/": { const query = document.querySelector("[data-query]"); if (!query) return; query.focus(); query.select(); break; }
    case "j": step(1); break;
    case "k": step(-1); break;
    case "x": { const box = row?.querySelector("input[type=checkbox]"); if (!box) return; box.click(); break; }
    case "Enter": if (row !== event.target) return; row.querySelector("a")?.click(); break;
    case "?": document.getElementById("help").showModal(); break;
    default: return;
  }
  event.preventDefault();
});

// Files: each is sent for itself, three at a time, and its row says how far it is.
function upload(form) {
  const drop = document.getElementById("drop"), list = document.getElementById("progress"), queue = [];
  const input = form.querySelector("input[type=file]"), d = form.dataset;
  form.querySelector("[data-js]").hidden = false;
  let running = 0, table = null;
  const add = (file, name) => {
    if (!table) {
      const box = document.createElement("table"), head = box.createTHead().insertRow();
      for (const text of [d.file, d.state]) { const cell = document.createElement("th"); cell.textContent = text; head.append(cell); }
      table = box.createTBody();
      list.replaceChildren(box);
    }
    const row = table.insertRow(), label = document.createElement("bdi"), state = row.insertCell();
    row.insertCell(0).append(label);
    row.setAttribute("data-row", ""); row.tabIndex = -1;
    label.textContent = name;
    if (file.size > Number(d.most)) { state.textContent = "✕ " + d.large; return; }
    state.textContent = "○ " + d.waiting;
    queue.push({ file, name, state, label });
    next();
  };
  const next = () => {
    if (running >= 3 || !queue.length) return;
    running++;
    const one = queue.shift(), data = new FormData(), ask = new XMLHttpRequest(), bar = document.createElement("progress");
    for (const field of ["knowledgeBase", "force"]) {
      const el = form.elements[field];
      if (el && el.value && (el.type !== "checkbox" || el.checked)) data.append(field, el.value);
    }
    data.append("file", one.file, one.name.split("/").pop());
    bar.max = 1; bar.value = 0;
    bar.setAttribute("aria-label", one.name);
    one.state.replaceChildren(bar);
    ask.upload.addEventListener("progress", (event) => { if (event.lengthComputable) bar.value = event.loaded / event.total; });
    ask.addEventListener("loadend", () => {
      running--;
      let said = {};
      try { said = JSON.parse(ask.responseText); } catch { /* not ours */ }
      if (ask.status >= 200 && ask.status < 300 && said.taskId) {
        const link = document.createElement("a");
        link.href = d.task + "/" + encodeURIComponent(said.taskId);
        link.textContent = one.name;
        one.label.replaceChildren(link);
        one.state.textContent = "✓ " + (said.duplicate ? d.duplicate : d.accepted);
        const kept = new URL(location.href);
        kept.searchParams.append("task", said.taskId); // a reload shows what was sent
        history.replaceState(null, "", kept);
      } else if (ask.responseURL.includes("/login")) { sessionEnded(); one.state.textContent = "✕ " + d.failed; } else {
        one.state.textContent = "✕ " + (said.message ? said.message + " " + (said.remedy || "") :
          (ask.status === 413 ? d.large : d.failed) + (ask.status ? " (HTTP " + ask.status + ")" : "")); // a proxy's word, or nobody's
      }
      next();
    });
    ask.open("POST", form.action);
    ask.setRequestHeader("Accept", "application/json");
    ask.send(data);
    next();
  };
  // walk adds a dropped folder's files, one after the other; a reader gives them in portions.
  const walk = async (entry, path) => {
    if (entry.isFile) { add(await new Promise((ok, no) => entry.file(ok, no)), path + entry.name); return; }
    const reader = entry.createReader();
    for (;;) {
      const some = await new Promise((ok, no) => reader.readEntries(ok, no));
      if (!some.length) return;
      for (const one of some) await walk(one, path + entry.name + "/");
    }
  };
  drop.addEventListener("dragover", (event) => { event.preventDefault(); drop.classList.add("over"); });
  drop.addEventListener("dragleave", () => drop.classList.remove("over"));
  drop.addEventListener("drop", (event) => {
    event.preventDefault();
    drop.classList.remove("over");
    const entries = [...event.dataTransfer.items].map((item) => item.webkitGetAsEntry?.()).filter(Boolean);
    if (entries.length) for (const entry of entries) walk(entry, "").catch(() => {});
    else for (const file of event.dataTransfer.files) add(file, file.name);
  });
  form.addEventListener("submit", (event) => {
    if (!input.files.length) return;
    event.preventDefault();
    for (const file of input.files) add(file, file.name);
    input.value = "";
  });
}

document.querySelector(".hint.keys").hidden = false;
mark();
addEventListener("resize", mark);
tell(document);
setInterval(() => tell(document), 5000);
follow();
const form = document.querySelector("[data-upload]");
if (form) upload(form);
