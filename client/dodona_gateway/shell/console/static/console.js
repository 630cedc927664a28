// What the console does besides htmx. Without it all pages work: they only stand still.
"use strict";

(() => {
  const stale = document.getElementById("stale");
  const live = () => document.getElementById("live");
  const result = document.getElementById("result");
  const isResult = (event) => result !== null && event.detail.ctx?.target === result;

  // Nobody looks at a page in the background: it need not be asked for. The result of an earlier
  // query is marked until that of the new one is there.
  document.addEventListener("htmx:before:request", (event) => {
    if (document.hidden && event.detail.ctx.sourceEvent?.type === "every") event.preventDefault();
    if (isResult(event)) result.classList.add("still");
  });
  document.addEventListener("htmx:finally:request", (event) => {
    if (isResult(event)) result.classList.remove("still");
  });

  // A page that stands still says so, until it moves again.
  const setStale = (text) => {
    if (!live()) return;
    if (stale.textContent !== text) stale.textContent = text;
    stale.hidden = text === "";
    live().classList.toggle("still", text !== "");
  };
  const OF_THEN = "What stands here is not of now; it is asked for again every other second.";

  const say = (text, kind, role) => {
    const said = document.createElement("p");
    said.className = kind;
    if (role) said.setAttribute("role", role);
    said.textContent = text;
    result.replaceChildren(said);
  };

  document.addEventListener("htmx:error", (event) => {
    if (isResult(event)) {
      say("The gateway does not answer: nothing is known of this query. It may be run again.", "notice bad", "alert");
    } else {
      setStale(`The gateway does not answer. ${OF_THEN}`);
    }
  });
  document.addEventListener("htmx:response:error", (event) => {
    const status = event.detail.ctx.response.status;
    if (!isResult(event)) setStale(`The gateway can't show this now (status ${status}). ${OF_THEN}`);
  });
  document.addEventListener("htmx:after:request", (event) => {
    if (event.detail.ctx.response?.status < 400) setStale("");
  });

  // The gateway gives up what nobody waits for.
  document.addEventListener("click", (event) => {
    const form = event.target.closest?.("[data-cancels]")?.form;
    if (!form) return;
    form.dispatchEvent(new Event("htmx:abort"));
    say("The query was cancelled.", "empty");
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
