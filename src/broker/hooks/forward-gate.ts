// Between a session and its connection, where hooks decide what may be delivered: in the order of the
// session, which counts a message as sent from here on. One that a hook refuses is acknowledged in
// the client's place.
//
// Bounded: with more than `bytesMax` waiting for hooks the session is told "full", and that there is
// room again once half of it has gone.

import { toError } from "../../base/index.ts";
import type { Delivery, SessionLink } from "../../session/index.ts";
import type { Ttv } from "../../store/index.ts";
import { hookPublishOf } from "./content.ts";
import type { Decided, HookRunner } from "./runner.ts";
import type { HookClient } from "./types.ts";

export type ForwardGateParts = {
  readonly hooks: HookRunner;
  readonly client: HookClient;
  readonly link: SessionLink;
  readonly bytesMax: number;
  /** Acknowledges a delivery that was not made. */
  readonly complete: (delivery: Delivery) => void;
  readonly room: () => void;
  readonly failed: (error: Error) => void;
};

type Waiting = { readonly message: Ttv; readonly delivery: Delivery };

export class ForwardGate implements SessionLink {
  readonly version: 4 | 5;
  readonly receiveMaximum: number;
  readonly #parts: ForwardGateParts;
  readonly #waiting: Waiting[] = [];
  #bytes = 0;
  #isAsking = false;
  #isFull = false;
  /** The first one may go, and the connection has no room for it. */
  #isStuck = false;

  constructor(parts: ForwardGateParts) {
    this.#parts = parts;
    this.version = parts.link.version;
    this.receiveMaximum = parts.link.receiveMaximum;
  }

  publish(message: Ttv, delivery: Delivery): "sent" | "too_large" | "full" {
    if (this.#waiting.length === 0) {
      const decided = this.#ask(message);
      if (!(decided instanceof Promise)) {
        // Refused: to the session it is as good as done.
        return "refusal" in decided ? "too_large" : this.#parts.link.publish(message, delivery);
      }
      this.#wait(message, delivery);
      this.#await(decided);
      return "sent";
    }
    if (this.#bytes + message.frame.length > this.#parts.bytesMax) {
      this.#isFull = true;
      return "full";
    }
    this.#wait(message, delivery);
    return "sent";
  }

  /** Hooks are asked when it is sent. */
  fits(message: Ttv, delivery: Delivery): boolean {
    return this.#parts.link.fits(message, delivery);
  }

  pubrel(packetId: number, reasonCode: number): void {
    this.#parts.link.pubrel(packetId, reasonCode);
  }

  end(reasonCode: number): void {
    this.#parts.link.end(reasonCode);
  }

  /** The connection has room again. */
  drained(): void {
    if (!this.#isStuck) return;
    this.#send();
    this.#next();
  }

  #ask(message: Ttv): Decided<undefined> | Promise<Decided<undefined>> {
    const { hooks, client } = this.#parts;
    const { publisher } = message;
    return hooks.authorizeForward(client, Object.freeze({ ...hookPublishOf(message), publisher }));
  }

  #wait(message: Ttv, delivery: Delivery): void {
    this.#waiting.push({ message: keptOf(message), delivery: { ...delivery } });
    this.#bytes += message.frame.length;
  }

  #await(decided: Promise<Decided<undefined>>): void {
    this.#isAsking = true;
    decided
      .then((later) => {
        this.#isAsking = false;
        this.#decided(later);
        this.#next();
      })
      .catch((error: unknown) => this.#parts.failed(toError(error)));
  }

  #next(): void {
    while (!this.#isAsking && !this.#isStuck) {
      const first = this.#waiting[0];
      if (first === undefined) break;
      const decided = this.#ask(first.message);
      if (decided instanceof Promise) {
        this.#await(decided);
        return;
      }
      this.#decided(decided);
    }
    if (!this.#isFull || this.#bytes > this.#parts.bytesMax / 2) return;
    this.#isFull = false;
    this.#parts.room();
  }

  #decided(decided: Decided<undefined>): void {
    if ("refusal" in decided) this.#leave("refused");
    else this.#send();
  }

  /** The first one, which may go. */
  #send(): void {
    const { message, delivery } = this.#waiting[0] as Waiting;
    const result = this.#parts.link.publish(message, delivery);
    this.#isStuck = result === "full" && delivery.qos > 0;
    if (!this.#isStuck) this.#leave(result === "sent" ? "sent" : "refused");
  }

  #leave(how: "sent" | "refused"): void {
    const { message, delivery } = this.#waiting.shift() as Waiting;
    this.#bytes -= message.frame.length;
    if (how === "refused" && delivery.qos > 0) this.#parts.complete(delivery);
  }
}

/** A message is only lent, and may look its fields up when it is asked for them. */
function keptOf(message: Ttv): Ttv {
  const { topic, timeUs, publisher, form, qos, retain, expiryUs, expiryOffset } = message;
  const frame = Buffer.from(message.frame);
  return { topic, timeUs, publisher, form, qos, retain, expiryUs, expiryOffset, frame };
}
