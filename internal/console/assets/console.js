// What is pleasant and not needed: a live view, times that go on, counts of what is
// chosen, copying. Every page works without it.
"use strict";
(() => {
  const $$ = (selector, inside = document) => [...inside.querySelectorAll(selector)];

  // Times: what the server wrote goes on, and a title tells the reader's own time.
  const units = [[86400 * 2, 86400, "d"], [3600, 3600, "h"], [60, 60, "min"], [0, 1, "s"]];
  const span = (seconds) => {
    for (const [from, unit, name] of units) if (seconds >= from) return Math.floor(seconds / unit) + " " + name;
  };
  const relative = (seconds) => {
    if (seconds > -1 && seconds < 2) return "now";
    return seconds < 0 ? "in " + span(-seconds) : span(seconds) + " ago";
  };
  const local = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "long" });
  const tell = () => {
    for (const time of $$("time.when")) {
      const at = new Date(time.dateTime);
      const ago = time.querySelector(".ago");
      const text = relative((Date.now() - at) / 1000);
      if (ago.textContent !== text) ago.textContent = text;
      if (!time.dataset.told) { time.title = local.format(at); time.dataset.told = "1"; }
    }
  };
  tell();
  setInterval(tell, 1000);

  // Live view: the page is fetched again, and its fresh part takes the place of the old.
  const live = (box) => {
    const button = box.querySelector("button"), status = box.querySelector("[role=status]");
    const every = Number(box.dataset.live) * 1000, remembered = "postlane live " + location.pathname.split("/").slice(0, 3).join("/");
    let timer = 0, on = false, asking = false;
    const busy = (part) => part.contains(document.activeElement) && document.activeElement.matches("input, select") || part.querySelector("details.menu[open]") || !getSelection().isCollapsed && part.contains(getSelection().anchorNode);
    const refresh = async () => {
      const part = document.getElementById("fresh");
      if (document.hidden || asking || busy(part)) return;
      asking = true;
      try {
        const answer = await fetch(location.href, { headers: { "X-Live": "1" }, redirect: "manual", cache: "no-store" });
        if (answer.type === "opaqueredirect") return stop("The session is over: reload the page to sign in.");
        if (!answer.ok) throw new Error(answer.status);
        const page = new DOMParser().parseFromString(await answer.text(), "text/html");
        const fresh = page.getElementById("fresh");
        if (fresh) replace(part, fresh);
        box.classList.remove("lost");
      } catch {
        if (!box.classList.contains("lost")) status.textContent = "The server does not answer. Trying on.";
        box.classList.add("lost");
      } finally {
        asking = false;
      }
    };
    const replace = (part, fresh) => {
      const open = $$("details", part).map((d) => d.open);
      const known = new Set($$("tr[data-key]", part).map((row) => row.dataset.key));
      const active = document.activeElement, focused = part.contains(active) ? path(part, active) : null;
      part.replaceChildren(...document.importNode(fresh, true).childNodes);
      const details = $$("details", part);
      if (details.length === open.length) details.forEach((d, i) => { d.open = open[i]; });
      if (focused) follow(part, focused)?.focus({ preventScroll: true });
      if (part.dataset.announce && known.size) {
        const rows = $$("tr[data-key]", part).filter((row) => !known.has(row.dataset.key));
        rows.forEach((row) => row.classList.add("new"));
        if (rows.length) status.textContent = rows.length + " new " + (rows.length === 1 ? part.dataset.announceOne : part.dataset.announce);
      }
      prepare(part);
      tell();
    };
    const stop = (why) => {
      clearInterval(timer);
      on = false;
      button.setAttribute("aria-pressed", "false");
      if (why) { status.textContent = why; status.classList.remove("quiet"); }
    };
    const start = () => {
      on = true;
      button.setAttribute("aria-pressed", "true");
      timer = setInterval(refresh, every);
    };
    button.addEventListener("click", () => {
      if (on) stop(); else { start(); refresh(); }
      try { localStorage.setItem(remembered, on ? "on" : "off"); } catch { /* not allowed to remember */ }
    });
    let was = null;
    try { was = localStorage.getItem(remembered); } catch { /* not allowed to remember */ }
    box.hidden = false;
    if (was === "on" || was === null && location.pathname === "/console/") start();
  };
  // Where an element stands in the tree below another.
  const path = (root, node) => {
    const steps = [];
    for (; node !== root; node = node.parentElement) steps.unshift([...node.parentElement.children].indexOf(node));
    return steps;
  };
  const follow = (root, steps) => steps.reduce((node, i) => node?.children[i], root);

  // Choosing: the button says how many.
  const counting = (form) => {
    const name = form.dataset.count, button = form.querySelector("[data-one]"), all = form.querySelector("[data-all]");
    if (!button) return;
    const boxes = $$("input[name=" + name + "]", form);
    const count = () => {
      const n = boxes.filter((b) => b.checked).length;
      button.textContent = n === 0 ? button.dataset.none : (n === 1 ? button.dataset.one : button.dataset.many).replace("%d", n);
      button.disabled = n === 0;
      if (all) { all.checked = n > 0 && n === boxes.length; all.indeterminate = n > 0 && n < boxes.length; }
    };
    if (all) {
      all.hidden = false;
      all.addEventListener("change", () => { boxes.forEach((b) => { b.checked = all.checked; }); count(); });
    }
    form.addEventListener("change", count);
    count();
  };

  // Copying.
  const copying = (button) => {
    if (!navigator.clipboard) return;
    button.hidden = false;
    const label = button.textContent;
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(document.getElementById(button.dataset.copy).textContent);
      button.textContent = "Copied";
      setTimeout(() => { button.textContent = label; }, 1500);
    });
  };

  // A form is sent once, however often its button is pressed.
  const once = (form) => form.addEventListener("submit", (e) => {
    if (form.dataset.sent) { e.preventDefault(); return; }
    form.dataset.sent = "1";
    addEventListener("pageshow", () => { delete form.dataset.sent; }, { once: true });
  });

  const prepare = (inside) => {
    $$("form[data-count]", inside).forEach(counting);
    $$("button[data-copy]", inside).forEach(copying);
    $$("form[method=post]", inside).forEach(once);
  };
  prepare(document);
  // On a phone the sections are a strip that may begin elsewhere.
  const strip = document.querySelector(".side nav ul"), current = strip?.querySelector("[aria-current]");
  if (current) strip.scrollLeft = current.offsetLeft - strip.offsetLeft - 40;
  $$("[data-live]").forEach(live);
})();
