// Reads the bodies of messages that an earlier connection left unfinished, as slots for them come free.

import type { SessionContext } from "./context.ts";
import type { Outbound } from "./core/outbound.ts";

/** Bodies read at a time: enough to fill a window without holding much. */
const bodiesMax = 64;

export class Resends {
  readonly #context: SessionContext;
  readonly #clientId: string;
  readonly #outbound: Outbound;
  readonly #ready: () => void;
  #reading = false;

  /** `ready`: bodies have come, or may be asked for again. */
  constructor(
    context: SessionContext,
    options: { clientId: string; outbound: Outbound; ready: () => void },
  ) {
    this.#context = context;
    this.#clientId = options.clientId;
    this.#outbound = options.outbound;
    this.#ready = options.ready;
  }

  read(): void {
    if (this.#reading) return;
    const wanted = this.#outbound.bodiesWanted(bodiesMax);
    if (wanted.length === 0) return;
    this.#reading = true;
    const refs = wanted.flatMap(({ source }) => (source.kind === "log" ? [source.ref] : []));
    this.#context.store.fetch(refs).then(
      (bodies) => {
        this.#reading = false;
        wanted.forEach((entry, index) => {
          this.#outbound.provide(entry, bodies[index]);
        });
        this.#ready();
      },
      (error: unknown) => {
        const { clock, logger, settings } = this.#context;
        logger.warn("session.resend_read_failed", { clientId: this.#clientId, error });
        clock.schedule(settings.retryDelayMs, () => {
          this.#reading = false;
          this.#ready();
        });
      },
    );
  }
}
