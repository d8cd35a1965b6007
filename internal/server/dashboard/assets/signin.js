// The sign-in form, for services that have users.
import { el, setText } from "./dom.js";
import { me, secret } from "./live.js";

// openSignIn asks for a secret until the service accepts one, and passes the caller on.
// error says why the service rejected the last one; null if there was none. Its text is for
// programs, so that the form has texts of its own.
export function openSignIn(main, error, accepted) {
  document.title = "Sign in · leased";
  const input = el("input", { id: "secret", type: "password", name: "secret", autocomplete: "off", required: true,
    spellcheck: "false", autocapitalize: "off", "aria-describedby": "sign-in-message" });
  const message = el("p", { id: "sign-in-message", class: "message bad", role: "alert" });
  const button = el("button", { type: "submit", class: "primary" }, "Sign in");
  const form = el("form", { class: "sign-in panel" },
    el("h1", {}, "Sign in"),
    el("p", { class: "muted" }, "This service has users. Enter your secret. It stays in this tab until you close it."),
    el("label", { for: "secret" }, "Secret"), input, message, button,
    el("p", { class: "muted small" }, "An administrator creates a user with ", el("code", {}, "leased user add NAME --allow 'read:*'"), "."));
  const say = (text) => setText(message, text);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const text = input.value.trim();
    button.disabled = true;
    say("");
    try {
      const caller = await me(text);
      secret.set(text);
      accepted(caller);
    } catch (e) {
      say(e.rejectsSecret ? "The service does not know this secret." : e.code ? e.message : "The service does not answer. Try again.");
      button.disabled = false;
      input.select();
    }
  });
  say(error ? "The service no longer accepts the secret of this tab." : "");
  main.replaceChildren(form);
  input.focus();
}
