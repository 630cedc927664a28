// Adds what htmx lacks. Without scripts all pages work, but they do not update themselves.
"use strict";

(() => {
  const stale = document.getElementById("stale");
  const live = () => document.getElementById("live");
  const result = document.getElementById("result");
  const isResult = (event) => result !== null && event.detail.ctx?.target === result;

  // A page in the background asks for no updates. The result of an earlier query is marked until
  // the new result arrives.
  document.addEventListener("htmx:before:request", (event) => {
    if (document.hidden && event.detail.ctx.sourceEvent?.type === "every") event.preventDefault();
    if (isResult(event)) result.classList.add("still");
  });
  document.addEventListener("htmx:finally:request", (event) => {
    if (isResult(event)) result.classList.remove("still");
  });

  // A page whose updates fail says so, until an update succeeds.
  const setStale = (text) => {
    if (!live()) return;
    if (stale.textContent !== text) stale.textContent = text;
    stale.hidden = text === "";
    live().classList.toggle("still", text !== "");
  };
  const OF_THEN = "The page shows old data, and asks for new data every two seconds.";

  const say = (text, kind, role) => {
    const said = document.createElement("p");
    said.className = kind;
    if (role) said.setAttribute("role", role);
    said.textContent = text;
    result.replaceChildren(said);
  };

  document.addEventListener("htmx:error", (event) => {
    if (isResult(event)) {
      say("The gateway does not answer, so the result of this query is not known. You may run it again.", "notice bad", "alert");
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

  // The gateway cancels a query whose caller has left.
  document.addEventListener("click", (event) => {
    const form = event.target.closest?.("[data-cancels]")?.form;
    if (!form) return;
    form.dispatchEvent(new Event("htmx:abort"));
    say("The query was cancelled.", "empty");
  });

  // To fill in a time or a timestamp also chooses it.
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
