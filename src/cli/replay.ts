// `sub --from`: what was stored since a time, by the node's HTTP interface, and then what comes, by
// MQTT. The subscription is made first and what it brings is held until the past is printed, so that
// nothing falls between the two. What came both ways in that moment is printed once: it is known by
// topic and payload, as MQTT tells no time of a message.
//
// Bounded: messages held, and their bytes; of the past a digest each of as many as matter.

import { createHash } from "node:crypto";
import type { AdminClient, Message } from "../admin/client.ts";
import { cliErrors } from "./errors.ts";
import type { IncomingMessage } from "./mqtt-client.ts";

export type Past = { readonly filter: string; readonly fromUs: number };
type Print = (message: IncomingMessage) => boolean;

const heldMax = 100_000;
const heldBytesMax = 64 * 1024 * 1024;
const pageMax = 1000;
const recentMin = 100;
const recentMax = 2 * heldMax + recentMin;

export class Replay {
  readonly #print: Print;
  #held: IncomingMessage[] | undefined = [];
  #heldBytes = 0;
  #overflow = false;
  /** Keys of the end of the past: what may have come both ways is there. */
  #recent: string[] = [];

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
      const query = { filter, fromUs, payload: true, whole: true, limit: pageMax };
      const page = await admin.queryHistory({
        query: after === undefined ? query : { ...query, after },
      });
      for (const message of page.items) {
        const incoming = incomingOf(message);
        this.#recent.push(keyOf(incoming));
        if (!this.#print(incoming)) return;
      }
      if (this.#recent.length > recentMax) this.#recent = this.#recent.slice(-recentMax);
      if (this.#overflow) throw cliErrors.replayOverflow({ max: heldMax });
      after = page.next;
    } while (after !== undefined);
    const held = this.#held ?? [];
    this.#held = undefined;
    const seen = this.#countsBehind(held.length);
    for (const message of held) {
      if (!isKnown(message, seen) && !this.#print(message)) return;
    }
  }

  /** Twice as many as were held, so that other messages between them do no harm. */
  #countsBehind(heldCount: number): Map<string, number> {
    const counts = new Map<string, number>();
    for (const key of this.#recent.slice(-(2 * heldCount + recentMin))) {
      counts.set(key, (counts.get(key) ?? 0) + 1);
    }
    this.#recent = [];
    return counts;
  }
}

/** Takes it out, so that the same said again is another message. */
function isKnown(message: IncomingMessage, seen: Map<string, number>): boolean {
  if (message.isRetained) return false;
  const key = keyOf(message);
  const count = seen.get(key) ?? 0;
  if (count === 0) return false;
  seen.set(key, count - 1);
  return true;
}

function keyOf({ topic, payload }: IncomingMessage): string {
  return createHash("sha256").update(`${topic}\u0000`).update(payload).digest("base64");
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
