// The dialog that breaks a lease.
import { el, setHidden, setText } from "./dom.js";
import { call } from "./live.js";

const wrongName = "This is not the name of the lock. Nothing was broken.";

// openBreak asks for the name of the lock, breaks the lease of the holder, and reports
// success. It breaks the lease with the token that was shown when the dialog opened, and therefore
// never the lease of the next holder.
export function openBreak(lock, party, done) {
  const name = lock.resource;
  const next = lock.waiters?.[0];
  const input = el("input", { id: "confirm-name", type: "text", autocomplete: "off", autocapitalize: "off", spellcheck: "false", "aria-describedby": "break-message" });
  const message = el("p", { id: "break-message", class: "message bad", role: "alert", hidden: true });
  const cancel = el("button", { type: "button" }, "Cancel");
  const submit = el("button", { type: "submit", class: "danger", disabled: true }, "Break the lease");
  const form = el("form", {},
    el("h2", { id: "break-title" }, "Break the lease of ", el("code", {}, party.holder || "an unnamed holder"), "?"),
    el("ul", {},
      el("li", {}, `The service ends the lease with token ${party.token}${party.user ? ` of user ${party.user}` : ""}. The holder learns of it at its next renewal.`),
      el("li", {}, next ? "The next waiter, " : "The next caller", next ? el("code", {}, next.holder || "unnamed") : null, next ? ", gets the lock with a larger token." : " gets the lock with a larger token."),
      el("li", {}, el("strong", {}, "The program of the holder does not stop."), " It can still write until the gate has admitted a newer token. Without a gate, nothing stops its writes.")),
    el("label", { for: "confirm-name" }, "Type the name of the lock to confirm: ", el("code", { class: "name" }, name)),
    input, message, el("div", { class: "buttons" }, cancel, submit));
  const dialog = el("dialog", { class: "break", "aria-labelledby": "break-title" }, form);
  const say = (text) => {
    setText(message, text);
    setHidden(message, text === "");
  };
  cancel.addEventListener("click", () => dialog.close());
  dialog.addEventListener("close", () => dialog.remove());
  input.addEventListener("input", () => {
    submit.disabled = input.value !== name;
    say(name.startsWith(input.value) ? "" : wrongName);
  });
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (input.value !== name) {
      say(wrongName);
      input.focus();
      return;
    }
    submit.disabled = true;
    try {
      await call("break", { resource: name, token: party.token });
      dialog.close();
      done(`The lease of ${party.holder || "the unnamed holder"} with token ${party.token} is broken.`);
    } catch (error) {
      say(error.code ? [error.message, error.hint].filter(Boolean).join(". ") : "The service did not answer: the lease may or may not be broken. Look at the lock before you try again.");
      submit.disabled = false;
    }
  });
  document.body.append(dialog);
  dialog.showModal();
  input.focus();
}
