// Messages of a shared group that came back from members, or found none with room: they are dealt
// again before anything new. Bodies of stored ones are read when their turn comes.
//
// What is stored waits in the order in which it was first dealt, and as long as it has to. What is
// not stored waits in memory, bounded: at the brim the oldest is dropped and counted.

import type { Ttv } from "../../store/index.ts";
import type { SessionContext } from "../context.ts";
import type { Assignment } from "./assignments.ts";

/** Bodies read at a time. */
const bodiesMax = 64;

export type NextReturned = {
  readonly message: Ttv;
  readonly assignment: Assignment | undefined;
  readonly sent: boolean;
};

type Live = { readonly message: Ttv; readonly sent: boolean };

export class Returned {
  readonly #context: SessionContext;
  readonly #group: string;
  readonly #ready: () => void;
  /** In order of their numbers. */
  #stored: Assignment[] = [];
  readonly #bodies = new Map<Assignment, Ttv>();
  #live: Live[] = [];
  #liveBytes = 0;
  #reading = false;

  /** `ready`: bodies have come, or may be asked for again. */
  constructor(context: SessionContext, group: string, ready: () => void) {
    this.#context = context;
    this.#group = group;
    this.#ready = ready;
  }

  get size(): number {
    return this.#stored.length + this.#live.length;
  }

  get hasLive(): boolean {
    return this.#live.length > 0;
  }

  add(assignment: Assignment): void {
    const at = this.#stored.findLastIndex((other) => other.number < assignment.number);
    this.#stored.splice(at + 1, 0, assignment);
  }

  addLive(message: Ttv, sent: boolean): void {
    const { settings, counters } = this.#context;
    // One that came back is older than those that wait for room.
    const at = sent ? this.#live.findIndex((other) => !other.sent) : -1;
    this.#live.splice(at < 0 ? this.#live.length : at, 0, { message, sent });
    this.#liveBytes += message.frame.length;
    const isOver = (): boolean =>
      this.#live.length > settings.memoryQueueMax ||
      (this.#live.length > 1 && this.#liveBytes > settings.memoryQueueBytesMax);
    while (isOver()) {
      this.#liveBytes -= this.#live.shift()?.message.frame.length ?? 0;
      counters.groupMessagesDropped++;
    }
  }

  remove(assignment: Assignment): void {
    const at = this.#stored.indexOf(assignment);
    if (at >= 0) this.#stored.splice(at, 1);
    this.#bodies.delete(assignment);
  }

  /** Takes the next to be dealt; undefined while its body is being read, and when there is none. */
  take(): NextReturned | undefined {
    const assignment = this.#stored[0];
    if (assignment === undefined) {
      const live = this.#live.shift();
      if (live === undefined) return undefined;
      this.#liveBytes -= live.message.frame.length;
      return { ...live, assignment: undefined };
    }
    const message = this.#bodies.get(assignment);
    if (message === undefined) {
      this.#read();
      return undefined;
    }
    this.#stored.shift();
    this.#bodies.delete(assignment);
    return { message, assignment, sent: assignment.sent };
  }

  /** Nobody had room for what `take` gave. */
  putBack({ message, assignment, sent }: NextReturned): void {
    if (assignment === undefined) {
      this.#live.unshift({ message, sent });
      this.#liveBytes += message.frame.length;
      return;
    }
    this.#stored.unshift(assignment);
    this.#bodies.set(assignment, message);
  }

  /** Nobody is connected any more: what is not stored goes with the last who might have taken it. */
  dropLive(): void {
    this.#context.counters.groupMessagesDropped += this.#live.length;
    this.#live = [];
    this.#liveBytes = 0;
  }

  /** Drops everything; how many there were. */
  clear(): number {
    const count = this.#stored.length;
    this.#stored = [];
    this.#bodies.clear();
    return count;
  }

  #read(): void {
    if (this.#reading) return;
    const wanted = this.#stored.slice(0, bodiesMax).filter((one) => !this.#bodies.has(one));
    this.#reading = true;
    const { store, clock, logger, settings, counters } = this.#context;
    store.fetch(wanted.map(({ ref }) => ref)).then(
      (bodies) => {
        this.#reading = false;
        wanted.forEach((assignment, index) => {
          const body = bodies[index];
          if (!this.#stored.includes(assignment)) return;
          if (body !== undefined) {
            this.#bodies.set(assignment, body);
            return;
          }
          counters.bodyGone++;
          assignment.done();
        });
        this.#ready();
      },
      (error: unknown) => {
        logger.warn("session.group_read_failed", { group: this.#group, error });
        clock.schedule(settings.retryDelayMs, () => {
          this.#reading = false;
          this.#ready();
        });
      },
    );
  }
}
