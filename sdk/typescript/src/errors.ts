/** An error of the lock service, or of a fence. docs/API.md lists the values of `code`; `hint` says what to do. */
export class LeasedError extends Error {
  override name = "LeasedError";
  constructor(
    readonly code: string,
    message: string,
    readonly hint = "",
    readonly details: Readonly<Record<string, unknown>> = {},
  ) {
    super(message);
  }
}

/** Others hold the lock, or are ahead in its queue. */
export class Held extends LeasedError {
  override name = "Held";
}

/** The lease has ended without a release. Stop writing. */
export class LeaseLost extends LeasedError {
  override name = "LeaseLost";
}

/** A fence refused a write, because a newer token has been admitted. Nothing was written. */
export class StaleToken extends LeasedError {
  override name = "StaleToken";
}

/** The service could not serve the call, which had no effect. Trying again is safe. */
export class Unavailable extends LeasedError {
  override name = "Unavailable";
}

/** The call may or may not have had an effect. */
export class Uncertain extends LeasedError {
  override name = "Uncertain";
}

/** The lock has another mode than the caller expects. */
export class ModeMismatch extends LeasedError {
  override name = "ModeMismatch";
}

const lost = ["not-held", "expired", "taken", "lost", "released"];
const unavailable = ["unavailable", "not-leader", "unreachable"];
const refused = ["invalid", "invalid-resource", "too-large", "permits-mismatch", "unauthenticated", "forbidden", "limit", "unsupported"];

/** Returns the error for the JSON of a failed call. An unknown code is uncertain. */
export function fromAnswer(answer: Readonly<Record<string, unknown>>): LeasedError {
  const code = String(answer["code"] ?? "internal");
  const message = String(answer["message"] ?? code);
  const hint = String(answer["hint"] ?? "");
  const type =
    code === "held" ? Held
    : code === "mode-mismatch" ? ModeMismatch
    : lost.includes(code) ? LeaseLost
    : unavailable.includes(code) ? Unavailable
    : refused.includes(code) ? LeasedError
    : Uncertain;
  return new type(code, message, hint, answer);
}
