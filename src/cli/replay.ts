// `sub --from`: what was stored since a time, by the node's HTTP interface, and then what comes, by MQTT.
// The subscription is made first and what it brings is held until the past is printed, so that nothing
// falls between the two. What came both ways in that moment is printed once: it is known by topic and
// payload, as MQTT tells no time of a message.
//
// Bounded: messages held, and their bytes.

import type { AdminClient, Message } from "../admin/client.ts";
import { cliErrors } from "./errors.ts";
import type { IncomingMessage } from "./mqtt-client.ts";

export type Past = { readonly filter: string; readonly fromUs: number };
type Print = (message: IncomingMessage) => boolean;

const heldMax = 100_000;
const heldBytesMax = 64 * 1024 * 1024;
const pageMax = 1000;

export class Replay {
  readonly #print: Print;
  #held: IncomingMessage[] | undefined = [];
  #heldBytes = 0;
  #overflow = false;
  /** Of the past behind the moment of the subscription: how often, by topic and payload. */
  readonly #seen = new Map<string, number>();
  cut = 0;

  constructor(print: Print) {
    this.#print = print;
  }

  /** A message of the subscription: printed, or held. */
  take(message: IncomingMessage): boolean {
    if (this.#held === undefined) return this.#print(message);
    const payload = Buffer.from(message.payload);
    this.#heldBytes += payload.length;
    if (this.#held.length >= heldMax || this.#heldBytes > heldBytesMax) this.#overflow = true;
    else this.#held.push({ ...message, payload });
    return !this.#overflow;
  }

  /**
   * Prints the past, then what was held. REQUIRES: the subscription was granted.
   * @throws CLI_REPLAY_OVERFLOW, what the node answers.
   */
  async run(admin: AdminClient, { filter, fromUs }: Past): Promise<void> {
    let after: string | undefined;
    do {
      // Whatever is held by now may be in this page or a later one.
      const mayOverlap = (this.#held?.length ?? 0) > 0 || after === undefined;
      const query = { filter, fromUs, payload: true, limit: pageMax };
      const page = await admin.queryHistory({
        query: after === undefined ? query : { ...query, after },
      });
      for (const message of page.items) {
        const incoming = incomingOf(message);
        if (message.isCut === true) this.cut++;
        if (mayOverlap || page.next === undefined) this.#note(incoming);
        if (!this.#print(incoming)) return;
      }
      if (this.#overflow) throw cliErrors.replayOverflow({ max: heldMax });
      after = page.next;
    } while (after !== undefined);
    const held = this.#held ?? [];
    this.#held = undefined;
    for (const message of held) {
      if (!this.#isKnown(message) && !this.#print(message)) return;
    }
    this.#seen.clear();
  }

  #note(message: IncomingMessage): void {
    const key = keyOf(message);
    this.#seen.set(key, (this.#seen.get(key) ?? 0) + 1);
  }

  #isKnown(message: IncomingMessage): boolean {
    if (message.isRetained) return false;
    const key = keyOf(message);
    const count = this.#seen.get(key) ?? 0;
    if (count === 0) return false;
    this.#seen.set(key, count - 1);
    return true;
  }
}

function keyOf({ topic, payload }: IncomingMessage): string {
  return `${topic}\u0000${Buffer.from(payload).toString("base64")}`;
}

function incomingOf(message: Message): IncomingMessage {
  const { topic, timeUs, qos, payload, payloadBase64 = "" } = message;
  const bytes = payload === undefined ? Buffer.from(payloadBase64, "base64") : Buffer.from(payload);
  return {
    ...{ topic, timeUs, qos, payload: bytes, isRetained: false, isDuplicate: false },
    ...{ userProperties: [], contentType: undefined, responseTopic: undefined },
    messageExpiryS: undefined,
  };
}
