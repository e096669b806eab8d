// One connection as its session sees it: messages out, in the form and within the limits of this
// client. What does not fit into the outbound buffer is the session's to keep.

import type { Clock } from "../base/index.ts";
import {
  createFrame,
  type FrameRun,
  reason,
  type ServerConnection,
  type StoredFrame,
  StoredRun,
} from "../mqtt/index.ts";
import type { Delivery, MessageRun, SessionLink } from "../session/index.ts";
import type { Ttv, TtvRun } from "../store/index.ts";
import type { Client, Rights } from "./access.ts";
import type { BrokerCounters } from "./counters.ts";
import type { DeviceProfile } from "./limits/devices.ts";
import { createRate, type Rate } from "./limits/rate.ts";
import { LiveRun } from "./live-run.ts";
import type { ConnectionTap } from "./tap.ts";
import type { ConnectionOutput } from "./write-path.ts";

export type LinkParts = {
  readonly core: ServerConnection;
  readonly output: ConnectionOutput;
  /** Its rights may change with a new login. */
  readonly owner: { readonly client: Client };
  readonly rights: Rights;
  readonly clock: Clock;
  readonly counters: BrokerCounters;
  /** Of a client that takes less than it can say. */
  readonly device: DeviceProfile | undefined;
  readonly tap: Pick<ConnectionTap, "deliver" | "isWatched">;
  /** Calls back when the pace has room again. */
  readonly paced: (waitMs: number) => void;
};

const usPerS = 1_000_000;
/** Scratch of one call. */
const storedRun = new StoredRun();

export class ClientLink implements SessionLink {
  readonly version: 4 | 5;
  readonly receiveMaximum: number;
  readonly #parts: LinkParts;
  readonly #pace: Rate | undefined;

  /** REQUIRES: CONNECT has come. */
  constructor(parts: LinkParts) {
    this.#parts = parts;
    this.version = parts.core.version;
    this.receiveMaximum = parts.core.clientReceiveMaximum;
    const { device, clock } = parts;
    this.#pace = device && createRate(device.messagesPerS, clock.elapsedMs());
  }

  publish(message: Ttv, delivery: Delivery): "sent" | "too_large" | "full" {
    const result = this.#publish(message, delivery);
    this.#parts.tap.deliver(message.topic, message.frame.length, delivery, result);
    return result;
  }

  #publish(message: Ttv, delivery: Delivery): "sent" | "too_large" | "full" {
    const { core, output, owner, rights, counters } = this.#parts;
    if (core.state !== "connected") return "full";
    if (!rights.may("receive", owner.client, message.topic)) {
      // To the session it is as good as done, like a message that the client cannot take.
      counters.deliveriesDenied++;
      return "too_large";
    }
    if (this.#isTooLarge(message)) return "too_large";
    if (!output.admits(message.frame.length)) {
      counters.deliveriesFull++;
      return "full";
    }
    if (!this.#keepsPace()) return "full";
    const { qos, dup, retain, packetId, subscriptionIds } = delivery;
    const { topic } = message;
    const remainingExpiryS = this.#remainingExpiryS(message.expiryUs);
    const options = { qos, dup, retain, packetId, subscriptionIds, remainingExpiryS, topic };
    const result = core.sendPublish(frameOf(message), options);
    if (result === "ended") return "full";
    if (result === "too_large") counters.deliveriesTooLarge++;
    else if (qos === 0) counters.deliveriesQos0++;
    else if (qos === 1) counters.deliveriesQos1++;
    else counters.deliveriesQos2++;
    return result;
  }

  publishRun(run: MessageRun | TtvRun, count: number, packetIds: Uint16Array): boolean {
    const { core, output, counters, device, tap } = this.#parts;
    if (device !== undefined || tap.isWatched) return false;
    const frames = run.kind === "stored" ? this.#storedFrames(run, count) : this.#liveFrames(run);
    if (frames === undefined) return false;
    const sizeBytes = (frames.starts[count] as number) - frames.start;
    if (!output.admits(sizeBytes) || !core.sendRun(frames, count, packetIds)) return false;
    if (run.qos === 0) counters.deliveriesQos0 += count;
    else counters.deliveriesQos1 += count;
    return true;
  }

  #liveFrames(run: MessageRun): FrameRun | undefined {
    const { owner, rights } = this.#parts;
    if (!(run instanceof LiveRun) || !rights.may("receive", owner.client, run.topic)) {
      return undefined;
    }
    return run.frames;
  }

  #storedFrames(run: TtvRun, count: number): FrameRun | undefined {
    if (run.form !== (this.version === 5 ? "v5" : "v4") || !this.#mayReceive(run, count)) {
      return undefined;
    }
    return storedRun.fill(run, count, this.version) ? storedRun : undefined;
  }

  /** Each topic of the run is asked for once. */
  #mayReceive(run: TtvRun, count: number): boolean {
    const { owner, rights } = this.#parts;
    const asked = new Uint8Array(run.topicCount);
    for (let index = 0; index < count; index++) {
      const id = run.topicId(index);
      if (asked[id] === 1) continue;
      asked[id] = 1;
      if (!rights.may("receive", owner.client, run.topic(index))) return false;
    }
    return true;
  }

  fits(message: Ttv, delivery: Delivery): boolean {
    const { core, owner, rights } = this.#parts;
    if (!rights.may("receive", owner.client, message.topic)) return false;
    const { qos, dup, retain, packetId, subscriptionIds } = delivery;
    const remainingExpiryS = this.#remainingExpiryS(message.expiryUs);
    const options = { qos, dup, retain, packetId, subscriptionIds, remainingExpiryS };
    return core.fitsPublish(frameOf(message), options);
  }

  pubrel(packetId: number, reasonCode: number): void {
    if (this.#parts.core.state === "connected") this.#parts.core.sendPubrel(packetId, reasonCode);
  }

  end(reasonCode: number): void {
    const { core } = this.#parts;
    // Not accepted yet, so CONNACK tells it, which has other reasons.
    if (core.state === "deciding") core.refuseConnect(reason.serverUnavailable);
    else core.disconnect(reasonCode);
  }

  #isTooLarge({ frame }: Ttv): boolean {
    const { device, counters } = this.#parts;
    if (device === undefined || frame.length <= device.packetBytesMax) return false;
    counters.deliveriesTooLargeForDevice++;
    return true;
  }

  #keepsPace(): boolean {
    if (this.#pace === undefined) return true;
    const { clock, counters, paced } = this.#parts;
    const nowMs = clock.elapsedMs();
    if (this.#pace.take(nowMs)) return true;
    counters.deliveriesPaced++;
    paced(this.#pace.waitMs(nowMs));
    return false;
  }

  #remainingExpiryS(expiryUs: number): number | undefined {
    if (expiryUs === 0) return undefined;
    return Math.max(0, Math.ceil((expiryUs - this.#parts.clock.wallUs()) / usPerS));
  }
}

function frameOf(message: Ttv): StoredFrame {
  const { form, frame, expiryOffset } = message;
  if (form !== "raw") return { bytes: frame, version: form === "v5" ? 5 : 4, expiryOffset };
  const { topic, qos, retain } = message;
  return createFrame({ topic, payload: frame, qos, retain });
}
