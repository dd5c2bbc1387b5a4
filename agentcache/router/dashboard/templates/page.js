"use strict";
(() => {
  const page = document.getElementById("page");
  const said = document.getElementById("said");
  const every = Number(page.dataset.every);
  const patience = 10000;
  let timer = 0;
  let asking = false;

  // Without the credentials that an address may have: fetch refuses those.
  const address = () =>
    location.origin + location.pathname.replace(/\/+$/, "") + "/fragment" + location.search;

  const scrolled = () => [...page.querySelectorAll("[data-scroll]")];

  function show(html) {
    if (!getSelection().isCollapsed) return "Stands still while text is selected"; // somebody copies it
    const places = new Map(scrolled().map((one) => [one.dataset.scroll, [one.scrollTop, one.scrollLeft]]));
    const focus = page.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
    page.innerHTML = html; // escaped by the router, which sent this script too
    for (const one of scrolled()) {
      [one.scrollTop, one.scrollLeft] = places.get(one.dataset.scroll) ?? [0, 0];
    }
    if (focus !== null) page.querySelector(`a[href="${CSS.escape(focus)}"]`)?.focus({ preventScroll: true });
    return "";
  }

  async function ask() {
    if (asking || document.hidden) return;
    asking = true;
    try {
      const answer = await fetch(address(), {
        cache: "no-store",
        redirect: "error",
        signal: AbortSignal.timeout(patience),
      });
      if (!answer.ok) throw new Error(`the router answered ${answer.status}`);
      said.textContent = show(await answer.text());
    } catch (error) {
      said.textContent = `Not up to date: ${error.message}`;
    } finally {
      asking = false;
      wait();
    }
  }

  function wait() {
    clearTimeout(timer);
    if (!document.hidden) timer = setTimeout(ask, every);
  }

  document.addEventListener("visibilitychange", () => (document.hidden ? clearTimeout(timer) : ask()));
  wait();
})();
