// What the console does besides htmx. Without it all pages work: they only stand still.
"use strict";

(() => {
  const stale = document.getElementById("stale");
  const live = () => document.getElementById("live");

  // Nobody looks at a page in the background: it need not be asked for.
  document.addEventListener("htmx:before:request", (event) => {
    if (document.hidden && event.detail.ctx.sourceEvent?.type === "every") event.preventDefault();
  });

  // A page that stands still says so, until it moves again.
  const setStale = (isStale) => {
    if (!live()) return;
    stale.hidden = !isStale;
    live().classList.toggle("still", isStale);
  };
  document.addEventListener("htmx:error", () => setStale(true));
  document.addEventListener("htmx:response:error", () => setStale(true));
  document.addEventListener("htmx:after:request", (event) => {
    if (event.detail.ctx.response?.status < 400) setStale(false);
  });

  // Whoever fills in a time or a timestamp has chosen it.
  document.addEventListener("input", (event) => {
    const choice = event.target.dataset?.chooses;
    if (!choice || !event.target.value) return;
    const radio = event.target.form.querySelector(`input[name=as_of][value=${choice}]`);
    if (radio) radio.checked = true;
  });

  document.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
    if (event.target.matches("textarea")) event.target.form.requestSubmit();
  });
})();
