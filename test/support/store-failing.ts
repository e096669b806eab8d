// One call of disk or key-value store fails, in a fixed history of a store: a start with something to
// recover, appends, state, checkpoints, rotation, packing, compaction, a clean end. Every call of the
// store's owner must be answered, by what it asked for or by a coded error; and after one more end and
// start nothing that was acked is missing.

import { isCodedError } from "../../src/base/index.ts";
import type { LocalStore } from "../../src/store/index.ts";
import { append, appendRequest, Reader } from "./store-calls.ts";
import { type Process, StoreMachine } from "./store-machine.ts";

const diskOperations = [
  ...(["open", "read", "write", "fdatasync", "truncate", "names", "syncDir"] as const),
];
const kvOperations = ["open", "destroy", "read", "write", "sync", "flush"] as const;

export type Place =
  | { readonly of: "disk"; readonly on: (typeof diskOperations)[number] }
  | { readonly of: "kv"; readonly on: (typeof kvOperations)[number] };
export type FailingCall = Place & { readonly skip: number; readonly fails: "EIO" | "ENOSPC" };

export const places: readonly Place[] = [
  ...diskOperations.map((on): Place => ({ of: "disk", on })),
  ...kvOperations.map((on): Place => ({ of: "kv", on })),
];

/** Longer than any retry. */
const answerMsMax = 600_000;

class History {
  readonly m = new StoreMachine({
    ...{ seed: 21, segmentBytes: 16 * 1024 },
    store: { shards: 2, stateShards: 1 },
  });
  readonly acked: string[] = [];
  readonly asked = new Set<string>();
  /** What a key may have: the last value acked, or nothing before, and those asked for since. */
  readonly keys = new Map<string, Array<string | undefined>>();
  readonly faults: string[] = [];
  #count = 0;

  /** Of what was answered with success. */
  async answer<T>(what: string, asked: Promise<T>): Promise<T | undefined> {
    let isAnswered = false;
    const outcome = asked.then(
      (value) => ({ value }),
      (error: unknown) => {
        if (!isCodedError(error)) this.faults.push(`${what}: ${error}`);
        return undefined;
      },
    );
    void outcome.then(() => {
      isAnswered = true;
    });
    await this.m.clock.runUntil(() => isAnswered, answerMsMax).catch(() => undefined);
    if (isAnswered) return (await outcome)?.value;
    this.faults.push(`${what} is never answered`);
    return undefined;
  }

  async appends(store: LocalStore, count: number): Promise<void> {
    const asked = Array.from({ length: count }, async () => {
      const value = `v${this.#count++}`;
      this.asked.add(value);
      const request = { publisher: `p${this.#count % 3}` };
      const padded = value.padEnd(400, ".");
      await append(store, appendRequest(`t/${this.#count % 2}`, padded, request));
      this.acked.push(value);
    });
    // Each is answered by itself: one that is refused says nothing of the others.
    await Promise.all(asked.map((each) => this.answer("append", each)));
  }

  async set(store: LocalStore, key: string): Promise<void> {
    const value = `${key} ${this.#count++}`;
    const written = new Promise<void>((resolve, reject) => {
      const writes = [{ key, value: Buffer.from(value) }];
      store.state(key).write(writes, [], (error) => (error ? reject(error) : resolve()));
    });
    const before = this.keys.get(key) ?? [undefined];
    this.keys.set(key, [...before, value]);
    await this.answer(
      "write",
      written.then(() => this.keys.set(key, [value])),
    );
  }

  /** What is there when the call fails that fails. */
  async fill(): Promise<void> {
    const { store } = await this.m.boot();
    await this.appends(store, 6);
    await this.set(store, "k/a");
    await this.answer("checkpoint", store.checkpoint());
    await this.answer("rotate", store.rotate());
    await this.appends(store, 4);
    await this.set(store, "k/b");
    this.m.kill();
  }

  /** Ends early, and not in an orderly way, when `isOver` says so between two steps. */
  async live(isOver: () => boolean = () => false): Promise<void> {
    const process = await this.answer("open", this.m.open());
    if (process === undefined) return;
    const { store } = process;
    store.interest.add("#", new Map());
    if (
      (await this.answer(
        "start",
        store.start().then(() => true),
      )) === undefined
    )
      return;
    const steps = [
      () => this.appends(store, 5),
      () => this.set(store, "k/a"),
      () => this.answer("checkpoint", store.checkpoint()),
      () => this.answer("rotate", store.rotate()),
      () => this.appends(store, 3),
      () => this.set(store, "k/c"),
      () => this.answer("repack", store.operator.repack({ all: true })),
      () => this.answer("compact", store.operator.compact()),
      () => this.appends(store, 2),
    ];
    for (const step of steps) {
      await step();
      if (isOver()) return;
    }
    await this.end(process);
  }

  async end({ store, log }: Process): Promise<void> {
    await this.answer("close", store.close());
    await this.answer("close of the log", log.close());
  }

  /** All that was acked is there, once and in order for each publisher, and the store goes on. */
  async check(): Promise<void> {
    const process = await this.answer("the start behind it", this.m.boot());
    if (process === undefined) {
      this.faults.push("it does not start");
      return;
    }
    const { store } = process;
    const reader = new Reader(store, ["#"], new Map());
    await this.m.clock.runUntil(() => reader.subscriber.atTail);
    await this.m.clock.advance(10);
    const read = reader.values.map((value) => value.replace(/\.+$/, ""));
    const missing = this.acked.filter((value) => !read.includes(value));
    if (missing.length > 0) this.faults.push(`acked and gone: ${missing}`);
    if (new Set(read).size !== read.length) this.faults.push(`twice: ${read}`);
    const strange = read.filter((value) => !this.asked.has(value));
    if (strange.length > 0) this.faults.push(`nobody published ${strange}`);
    for (const [key, allowed] of this.keys) {
      const entry = await this.answer("get", store.state(key).get(key));
      const value = entry?.value.toString();
      if (!allowed.includes(value)) {
        this.faults.push(`${key} is ${value}, not ${allowed.join(" or ")}`);
      }
    }
    const ackedBefore = this.acked.length;
    await this.appends(store, 2);
    if (this.acked.length !== ackedBefore + 2) this.faults.push("it takes nothing more");
    await this.end(process);
  }
}

/** Calls of each kind in the history, when none fails. */
export async function countCalls(place: Place): Promise<number> {
  const history = new History();
  await history.fill();
  const { m } = history;
  const all = { skip: 0, times: Number.POSITIVE_INFINITY, delayMs: 0 };
  const before = m.disk.faultCount + m.kv.faultCount;
  if (place.of === "disk") m.disk.inject({ on: place.on, ...all });
  else m.kv.inject({ on: place.on, ...all });
  await history.live();
  const { faults, acked } = history;
  if (faults.length > 0 || acked.length !== 20) throw new Error(`without a fault: ${faults}`);
  return m.disk.faultCount + m.kv.faultCount - before;
}

/** What was wrong; nothing when all was well. A power cut comes soon after the call has failed. */
export async function failAt(call: FailingCall, end: "kill" | "crash"): Promise<string[]> {
  const history = new History();
  await history.fill();
  const { m } = history;
  const { skip, fails } = call;
  if (call.of === "disk") m.disk.inject({ on: call.on, skip, fails });
  else m.kv.inject({ on: call.on, skip, fails });
  const before = m.disk.faultCount + m.kv.faultCount;
  await history.live(() => end === "crash" && m.disk.faultCount + m.kv.faultCount > before);
  m[end]();
  m.disk.heal();
  m.kv.heal();
  await history.check();
  return history.faults.map((fault) => `${call.of} ${call.on} ${skip} ${fails}, ${end}: ${fault}`);
}
