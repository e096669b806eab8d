// Server-sent events for pages and `--watch`: the status each second, and at once what changed in
// alarms and tasks. Nothing is kept for a reader that is away; one that does not read is let go, and
// so is one whose key is revoked, at once.
//
// Bounded: readers at once, also of one key, so that none takes every place; bytes waiting for one.

import type { Clock } from "../base/index.ts";
import type { Alarm } from "../store/index.ts";
import type { Status, Task } from "./contract.ts";
import { adminErrors } from "./errors.ts";

export type EventReader = {
  /** Id of its key. */
  readonly keyId: string;
  /** Asked before each event. */
  readonly mayRead: () => boolean;
};

export type EventSource = {
  readonly status: () => Promise<Status>;
  readonly alarms: () => readonly Alarm[];
  readonly tasks: () => readonly Task[];
};

const readersMax = 32;
const readersOfKeyMax = 16;
const everyMs = 1000;
/** Events a reader may be behind before it is let go. */
const waitingMax = 30;

export class EventStreams {
  readonly #source: EventSource;
  readonly #clock: Clock;
  readonly #readers = new Map<ReadableStreamDefaultController<Uint8Array>, EventReader>();
  #last = { alarms: "", tasks: "" };
  #isTicking = false;
  #closed = false;

  constructor(source: EventSource, clock: Clock) {
    this.#source = source;
    this.#clock = clock;
  }

  get readerCount(): number {
    return this.#readers.size;
  }

  /** @throws ADMIN_BUSY. */
  open(reader: EventReader): ReadableStream<Uint8Array> {
    if (this.#closed || this.#readers.size >= readersMax) {
      throw adminErrors.busy({ what: "event streams", max: readersMax });
    }
    const own = [...this.#readers.values()].filter(({ keyId }) => keyId === reader.keyId);
    if (own.length >= readersOfKeyMax) {
      throw adminErrors.busy({ what: "event streams of this key", max: readersOfKeyMax });
    }
    let place: ReadableStreamDefaultController<Uint8Array> | undefined;
    return new ReadableStream<Uint8Array>(
      {
        start: (controller) => {
          place = controller;
          this.#readers.set(controller, reader);
          controller.enqueue(encode("hello", { everyMs }));
          this.#last = { alarms: "", tasks: "" };
          this.#tick();
        },
        cancel: () => {
          if (place !== undefined) this.#readers.delete(place);
        },
      },
      new CountQueuingStrategy({ highWaterMark: waitingMax }),
    );
  }

  /** Ends those who may not read any more. */
  recheck(): void {
    for (const [place, { mayRead }] of this.#readers) if (!mayRead()) this.#drop(place);
  }

  close(): void {
    this.#closed = true;
    for (const reader of this.#readers.keys()) this.#drop(reader);
  }

  #tick(): void {
    if (this.#isTicking) return;
    this.#isTicking = true;
    this.#tell()
      .catch(() => undefined) // a node that is going down has no status; the next look tells
      .finally(() => {
        this.#clock.schedule(everyMs, () => {
          this.#isTicking = false;
          if (this.#readers.size > 0 && !this.#closed) this.#tick();
        });
      });
  }

  async #tell(): Promise<void> {
    this.#send("status", await this.#source.status());
    const alarms = this.#source.alarms();
    const tasks = this.#source.tasks();
    const now = { alarms: JSON.stringify(alarms), tasks: JSON.stringify(tasks) };
    if (now.alarms !== this.#last.alarms) this.#send("alarms", alarms);
    if (now.tasks !== this.#last.tasks) this.#send("tasks", tasks);
    this.#last = now;
  }

  #send(event: string, data: unknown): void {
    const bytes = encode(event, data);
    this.recheck();
    for (const reader of this.#readers.keys()) {
      if ((reader.desiredSize ?? 0) <= 0) this.#drop(reader);
      else reader.enqueue(bytes);
    }
  }

  #drop(reader: ReadableStreamDefaultController<Uint8Array>): void {
    this.#readers.delete(reader);
    try {
      reader.close();
    } catch {
      // Cancelled by its reader in the same moment: it is gone, which is what was wanted.
    }
  }
}

function encode(event: string, data: unknown): Uint8Array {
  return Buffer.from(`event: ${event}\ndata: ${JSON.stringify(data)}\n\n`);
}
