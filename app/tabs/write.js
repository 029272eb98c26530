() => {
// The document of the Write tab. It lives here alone: no run, failed or not, can touch it, and what
// is accepted is put in by this page. Offsets that come or go are in code points; inside, in UTF-16.
const KEY = "elf-write";
const MOST_KEPT = 100;
const MOST_CHARACTERS = 2e6;
const mac = /Mac|iP(hone|ad)/.test(navigator.platform);
const asked = new Map();
// `eol`: a text box turns every line end into \n; a text that came with \r\n leaves with it.
let doc = { value: "", eol: "\n", parent: "", states: [""], at: 0, caret: [0, 0] };
let accepted = null;
let saveLater = 0, countLater = 0;

const box = () => document.querySelector("#write-text textarea");
const tab = () => document.getElementById("write-tab");
const cards = () => [...document.querySelectorAll("#write-cards .elf-card[data-changes]")];
const points = (s) => { let n = 0; for (const _ of s) n += 1; return n; };
const withEol = (s) => doc.eol === "\n" ? s : s.replaceAll("\n", doc.eol);
const plain = (s) => s.replace(/\r\n?/g, "\n");

const say = (words) => { const e = document.getElementById("write-said"); if (e) e.textContent = words; };

// --- keeping ------------------------------------------------------------------------------------
const save = () => {
  clearTimeout(saveLater);
  const kept = JSON.stringify(doc);
  // This page's own copy wins over one of another window; the common one outlives the browser.
  try { sessionStorage.setItem(KEY, kept); localStorage.setItem(KEY, kept); }
  catch { say("The browser has no room to keep this text: copy it before you leave."); }
};
const recover = () => {
  for (const store of [sessionStorage, localStorage]) {
    try {
      const kept = JSON.parse(store.getItem(KEY));
      if (typeof kept?.value === "string" && Array.isArray(kept.states)) return { ...doc, ...kept };
    } catch { /* not ours, or no storage */ }
  }
  return doc;
};

// --- the text box ---------------------------------------------------------------------------------
const common = (a, b) => {
  const most = Math.min(a.length, b.length);
  let left = 0, right = 0;
  while (left < most && a[left] === b[left]) left += 1;
  while (right < most - left && a[a.length - 1 - right] === b[b.length - 1 - right]) right += 1;
  return [left, right];
};
// Puts `value` in by typing only what differs, which the browser's own undo can take back.
const put = (value, from, to) => {
  const area = box();
  if (area && area.value !== value) {
    const [left, right] = common(area.value, value);
    const old = area.value.length - right, words = value.slice(left, value.length - right);
    area.focus({ preventScroll: true });
    area.setSelectionRange(left, old);
    const typed = words ? document.execCommand("insertText", false, words)
      : document.execCommand("delete");
    if (!typed || area.value !== value) {
      area.value = value;
      area.dispatchEvent(new Event("input", { bubbles: true }));
    }
  }
  doc.value = value;
  doc.caret = [from, to];
  if (area) { area.focus({ preventScroll: true }); area.setSelectionRange(from, to); }
  changed();
};
const changed = () => {
  if (!doc.value.trim()) doc.parent = "";
  clearTimeout(saveLater);
  saveLater = setTimeout(save, 250);
  clearTimeout(countLater);
  countLater = setTimeout(() => document.getElementById("write-tick")?.click(), 400);
  show();
};
const show = () => {
  const words = (doc.value.match(/\S+/g) || []).length;
  const set = (id, text) => { const e = document.getElementById(id); if (e && e.textContent !== text) e.textContent = text; };
  set("write-words", `${words} ${words === 1 ? "word" : "words"}`);
  set("write-hint", hint());
  for (const [id, able] of [["undo", canUndo()], ["redo", doc.at < doc.states.length - 1]]) {
    const button = document.querySelector(`#write-tools [data-do=${id}]`);
    if (button) button.disabled = !able;
  }
};
const hint = () => {
  const { from, to } = selected();
  const chosen = doc.value.slice(from, to).replace(/\s+/g, " ");
  if (chosen) return `Selected: “${chosen.length > 60 ? chosen.slice(0, 59) + "…" : chosen}”`;
  if (!doc.value.trim()) return "Start writing, or press Continue on the empty page.";
  return "Nothing selected: Infill writes at the cursor, Rewrite takes the sentence there, Continue goes on from there.";
};
// The selection without the white space at its ends.
const selected = () => {
  const area = box();
  const v = area ? area.value : doc.value;
  let [from, to] = area ? [area.selectionStart, area.selectionEnd] : doc.caret;
  const end = to;
  while (from < to && /\s/.test(v[from])) from += 1;
  while (to > from && /\s/.test(v[to - 1])) to -= 1;
  return from < to ? { from, to } : { from: end, to: end };
};

// --- undo of what was accepted --------------------------------------------------------------------
const canUndo = () => doc.at > 0 || doc.value !== doc.states[doc.at];
const note = () => {
  if (doc.value === doc.states[doc.at]) return;
  doc.states = [...doc.states.slice(0, doc.at + 1), doc.value];
  let size = doc.states.reduce((n, s) => n + s.length, 0);
  while (doc.states.length > MOST_KEPT || (size > MOST_CHARACTERS && doc.states.length > 2))
    size -= doc.states.shift().length;
  doc.at = doc.states.length - 1;
};
const step = (by) => {
  if (by < 0) note();
  const at = doc.at + by;
  if (at < 0 || at >= doc.states.length) return;
  const [left, right] = common(doc.value, doc.states[at]);
  doc.at = at;
  accepted = null;
  put(doc.states[at], left, doc.states[at].length - right);
  say(by < 0 ? "Undone." : "Done again.");
};

// --- asking ---------------------------------------------------------------------------------------
const ask = (act) => {
  const area = box();
  if (area) doc.value = area.value;
  const { from, to } = selected();
  const text = withEol(doc.value);
  const start = points(withEol(doc.value.slice(0, from)));
  const chosen = withEol(doc.value.slice(from, to));
  const run = `${Date.now().toString(36)}-${asked.size}`;
  asked.set(run, text);
  while (asked.size > 4) asked.delete(asked.keys().next().value);
  save();
  return JSON.stringify({ run, act, text, start, stop: start + points(chosen), chosen, parent: doc.parent });
};
const offsets = (text, wanted) => {  // code points to UTF-16, for an ascending list
  const found = [];
  let unit = 0, point = 0;
  for (const n of wanted) {
    while (point < n && unit < text.length) { unit += text.codePointAt(unit) > 0xffff ? 2 : 1; point += 1; }
    found.push(unit);
  }
  return found;
};
// How far the words `from` to `to` moved since: they lie outside of what was edited, or are found
// once with some of what stood around them. null when they were edited themselves.
const moved = (base, now, from, to) => {
  const [left, right] = common(base, now);
  if (to <= left) return 0;
  if (from >= base.length - right) return now.length - base.length;
  for (const around of [80, 40, 20, 10]) {
    const start = Math.max(0, from - around), words = base.slice(start, to + around);
    const at = now.indexOf(words);
    if (words && at >= 0 && now.indexOf(words, at + 1) < 0) return at - start;
  }
  return null;
};
const placed = (base, now, changes) => {
  if (!changes.length) return [];
  const at = offsets(base, changes.flatMap(([start, stop]) => [start, stop]));
  const by = moved(base, now, at[0], at[at.length - 1]);
  if (by === null) return null;
  const found = changes.map(([, , before, after], i) => [at[2 * i] + by, at[2 * i + 1] + by, after, before]);
  return found.every(([start, stop, , before]) => now.slice(start, stop) === before) ? found : null;
};
const accept = (card) => {
  const base = asked.get(card.dataset.run);
  const changes = JSON.parse(card.dataset.changes);
  if (base === undefined) return say("This candidate is from before the page was loaded; it is in the History.");
  // Another candidate of the same click replaces the one accepted before it.
  const swap = accepted?.run === card.dataset.run && accepted.after === doc.value && doc.at > 0;
  const now = withEol(swap ? doc.states[doc.at - 1] : doc.value);
  const found = placed(base, now, changes);
  if (!found) return say("The words this candidate replaces were changed since; run it again.");
  let out = "", done = 0, first = null, last = 0;
  for (const [start, stop, after] of found) {
    out += now.slice(done, start);
    first ??= plain(out).length;
    out += after;
    last = plain(out).length;
    done = stop;
  }
  const after = plain(out + now.slice(done));
  if (swap) { doc.at -= 1; doc.states.length = doc.at + 1; } else note();
  const draft = changes.length === 1 && changes[0][0] === changes[0][1];
  doc.parent = card.dataset.id;
  put(after, draft ? last : first ?? 0, last);
  note();
  accepted = { run: card.dataset.run, after };
  changed();
  for (const other of cards()) mark(other, other === card ? "accepted" : "");
  say(`${name(card)} accepted. Undo takes it back.`);
};
const name = (card) => card.querySelector("h3").firstChild.textContent;
const mark = (card, word) => {
  card.classList.toggle("taken", word === "accepted");
  card.querySelector(".elf-mark").textContent = word ? ` – ${word}` : "";
};

// --- candidates -----------------------------------------------------------------------------------
const open = () => cards().filter((card) => !card.hidden);
const current = () => open().find((card) => card.classList.contains("current")) || open()[0];
const look = (card, focus) => {
  for (const other of cards()) other.classList.toggle("current", other === card);
  if (!card) return;
  card.scrollIntoView({ block: "nearest" });
  if (focus) card.focus({ preventScroll: true });
};
const next = (by, focus) => {
  const all = open();
  if (all.length) look(all[(all.indexOf(current()) + by + all.length) % all.length], focus);
};
const discard = (card, focus) => {
  const all = open(), i = all.indexOf(card);
  card.hidden = true;
  say(`${name(card)} discarded. It stays in the History.`);
  if (all.length > 1) look(all[i + 1] || all[i - 1], focus); else if (focus) box()?.focus();
};
const scrub = (range) => {
  const noise = range.closest(".elf-noise");
  const steps = JSON.parse(noise.dataset.steps), i = Number(range.value) - 1, at = steps[i];
  noise.querySelector("output").textContent = `${i + 1} of ${steps.length}: ${at.changed} tokens changed, ${at.left} unlike the final text`;
  range.setAttribute("aria-valuetext", `step ${i + 1}: ${at.text}`);
  noise.querySelector(".elf-then").textContent = at.text;
  const x = (i + 0.5) / steps.length * noise.querySelector("svg").viewBox.baseVal.width;
  for (const end of ["x1", "x2"]) noise.querySelector(".here").setAttribute(end, x);
};
const copy = async () => {
  try { await navigator.clipboard.writeText(withEol(doc.value)); say("Copied."); }
  catch { say("The browser did not allow copying; select the text and copy it yourself."); }
};

// --- from elsewhere -------------------------------------------------------------------------------
// {text, start, stop, parent} from the History or another tab; the present text can be undone to.
const receive = (raw) => {
  if (!raw) return;
  const given = JSON.parse(raw);
  if (box()) doc.value = box().value;
  note();
  doc.eol = given.text.includes("\r\n") && !/(^|[^\r])\n/.test(given.text) ? "\r\n" : "\n";
  doc.parent = given.parent || "";
  const [from, to] = offsets(given.text, [given.start, given.stop]);
  accepted = null;
  put(plain(given.text), plain(given.text.slice(0, from)).length, plain(given.text.slice(0, to)).length);
  note();
  changed();
};

// --- events ---------------------------------------------------------------------------------------
document.addEventListener("input", (event) => {
  if (event.target === box()) { doc.value = event.target.value; changed(); }
  else if (event.target.matches?.(".elf-noise input")) scrub(event.target);
});
document.addEventListener("paste", (event) => {
  const area = box();
  if (event.target !== area || !area) return;
  const pasted = event.clipboardData?.getData("text/plain") || "";
  const whole = area.selectionStart === 0 && area.selectionEnd === area.value.length;
  if (whole) doc.eol = pasted.includes("\r\n") && !/(^|[^\r])\n/.test(pasted) ? "\r\n" : "\n";
});
document.addEventListener("selectionchange", () => {
  const area = box();
  if (!area || document.activeElement !== area) return;
  doc.caret = [area.selectionStart, area.selectionEnd];
  show();
});
document.addEventListener("click", (event) => {
  const button = event.target.closest?.("[data-do]");
  if (!button || !tab()?.contains(button)) return;
  const card = button.closest(".elf-card"), todo = button.dataset.do;
  if (todo === "undo") step(-1);
  if (todo === "redo") step(1);
  if (todo === "copy") copy();
  if (todo === "accept") { look(card); accept(card); }
  if (todo === "discard") discard(card, true);
  if (todo === "next") { look(card); next(1, true); }
});
// A button pressed with the mouse leaves the text its focus, so that the selection stays in sight.
document.addEventListener("mousedown", (event) => {
  if (document.activeElement === box() && event.target.closest?.("#write-acts button")) event.preventDefault();
});
document.addEventListener("keydown", (event) => {
  const inside = tab()?.offsetParent !== null && (tab()?.contains(document.activeElement) || document.activeElement === document.body);
  if (!inside || event.isComposing) return;
  const press = (id) => { event.preventDefault(); document.getElementById(id)?.click(); };
  const main = mac ? event.metaKey : event.ctrlKey;
  if (event.key === "Enter" && main && !event.altKey) {
    const { from, to } = selected();
    return press(event.shiftKey ? "write-rewrite" : from < to ? "write-infill" : "write-draft");
  }
  if (event.key === "Escape" && !document.getElementById("write-stop")?.disabled) return press("write-stop");
  // AltGr writes letters, and on a Mac so does Option alone.
  const ours = event.altKey && event.ctrlKey === mac && !event.getModifierState("AltGraph");
  const card = current();
  const todo = ours && {
    Enter: () => card && accept(card), KeyN: () => next(1), KeyP: () => next(-1),
    KeyX: () => card && discard(card), KeyZ: () => step(-1), KeyY: () => step(1),
  }[/^[a-z]$/i.test(event.key) ? `Key${event.key.toUpperCase()}` : event.code];
  if (todo) { event.preventDefault(); todo(); }
});
addEventListener("pagehide", save);
doc = recover();
let seen = null;
const settle = () => {
  const area = box();
  if (area && area !== seen) {  // the page is there, or there again
    if (area.value && seen === null && area.value !== doc.value) {
      // Written before this script was there: it stays, and Undo leads to the draft that was kept.
      note();
      doc.value = area.value;
      doc.caret = [area.selectionStart, area.selectionEnd];
    } else if (area.value !== doc.value) {
      area.value = doc.value;
      area.dispatchEvent(new Event("input", { bubbles: true }));
    }
    seen = area;
    area.setSelectionRange(...doc.caret);
    changed();
  }
  if (document.getElementById("write-hint")?.textContent === "") show();
};
new MutationObserver(settle).observe(document.body, { childList: true, subtree: true });
settle();
window.elfWrite = { ask, receive, text: () => withEol(box()?.value ?? doc.value) };
}
