/**
 * A moment on two clocks. On macOS performance.now() counts the time while the machine is suspended, on Linux it does
 * not, and the wall clock may be set. So a holder uses the one that counts more.
 */
export class Instant {
  private readonly monotonic = performance.now();
  private readonly wall = Date.now();

  /** Returns the milliseconds since this moment. */
  elapsed(): number {
    return Math.max(performance.now() - this.monotonic, Date.now() - this.wall);
  }
}

const units: Readonly<Record<string, number>> = { h: 3_600_000, m: 60_000, s: 1000, ms: 1, us: 1e-3, "µs": 1e-3, ns: 1e-6 };

/** Returns the milliseconds of a duration of the service, such as "1m30s". */
export function parseDuration(text: string): number {
  const parts = [...text.matchAll(/([0-9.]+)(h|ms|us|µs|ns|m|s)/g)];
  if (parts.length === 0) throw new TypeError(`not a duration: ${text}`);
  return parts.reduce((sum, [, number, unit]) => sum + Number(number) * (units[unit ?? ""] ?? NaN), 0);
}

/** Returns milliseconds as the service reads them. */
export function formatDuration(milliseconds: number): string {
  return `${Math.max(0, Math.round(milliseconds))}ms`;
}

/** Waits, and ends early with the signal's reason. A pause in the background does not keep the process running. */
export function pause(milliseconds: number, signal?: AbortSignal, background = false): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) return reject(signal.reason as Error);
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", ended);
      resolve();
    }, milliseconds);
    if (background) timer.unref();
    const ended = (): void => {
      clearTimeout(timer);
      reject(signal?.reason as Error);
    };
    signal?.addEventListener("abort", ended, { once: true });
  });
}
