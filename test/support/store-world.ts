// Random histories of a store on a simulated machine, and the model that says what must be there.
//
// One run is one seed: appends (plain, with QoS 2 evidence, with a writer), map writes and
// transactions, rotations, checkpoints, readers with small windows; processes are killed and power
// is cut at any moment, also during recovery. After each start:
// - every acked TTV is read once from position 0, in commit order, and nothing is read that was not
//   appended;
// - TTVs of one publisher come in the order in which they were appended;
// - an evidence id is stored once however often its append was repeated;
// - a map key holds its last acked value or a later one that was in flight.

import type { LocalStore, MapShard } from "../../src/store/index.ts";
import { appendRequest, Reader } from "./store-calls.ts";
import { type Process, StoreMachine } from "./store-machine.ts";

export const worldCountsZero = {
  appended: 0,
  acked: 0,
  repeats: 0,
  mapWrites: 0,
  transactions: 0,
  conflicts: 0,
  rotations: 0,
  checkpoints: 0,
  kills: 0,
  crashes: 0,
  recoveryCrashes: 0,
  stops: 0,
  fullTurns: 0,
  realtimeTtvs: 0,
  catchUpTtvs: 0,
  handOvers: 0,
  fallBehinds: 0,
  blocksRead: 0,
};
export type WorldCounts = typeof worldCountsZero;

type Sent = {
  readonly value: string;
  readonly publisher: string;
  /** Evidence id by which it is repeated until acked. */
  readonly packetId: number | undefined;
  acked: boolean;
};

const publishers = ["p0", "p1", "p2"];
const topics = ["a/1/x", "a/2/x", "a/3/y", "b", "c/d/e/f", "$s/x"];
const filters = ["#", "a/+/x", "b", "c/#", "$s/#"];
const mapKeys = ["k/1", "k/2", "other/3"];
const claim = { incarnation: 5, ownerEpoch: 6 };

export class StoreWorld {
  readonly machine: StoreMachine;
  readonly counts: WorldCounts = { ...worldCountsZero };
  readonly #random;
  readonly #sent: Sent[] = [];
  readonly #openIds = new Map<string, Sent[]>();
  readonly #map = new Map<string, { acked: string | undefined; inFlight: Set<string> }>();
  #counterAcked = 0;
  #counterTried = 0;
  #sequence = 0;
  #process: Process | undefined;
  #readers: Reader[] = [];

  constructor(seed: number | string) {
    this.machine = new StoreMachine({ seed, segmentBytes: 32 * 1024 });
    this.#random = this.machine.random.split("world");
    for (const key of mapKeys) this.#map.set(key, { acked: undefined, inFlight: new Set() });
  }

  get store(): LocalStore {
    return this.#process!.store;
  }

  async run(operations: number, endings: number): Promise<void> {
    await this.#start();
    const perLife = Math.ceil(operations / (endings + 1));
    for (let life = 0; life <= endings; life++) {
      for (let n = 0; n < perLife; n++) await this.#operate();
      if (life < endings) await this.#end();
    }
    await this.machine.clock.advance(2_000);
    await this.#check();
    await this.machine.stop(this.#process!);
  }

  // -------------------------------------------------------------- lives

  async #start(): Promise<void> {
    const { clock } = this.machine;
    for (;;) {
      const interrupt = this.#random.chance(0.2) && this.#sent.length > 0;
      const opening = this.machine.open();
      opening.catch(() => undefined);
      if (interrupt) {
        await clock.advance(this.#random.between(0, 30));
        this.#cut();
        this.counts.recoveryCrashes++;
        continue;
      }
      this.#process = await clock.complete(opening, 600_000);
      break;
    }
    for (const filter of filters) this.store.interest.add(filter, new Map());
    await clock.complete(this.store.start(), 600_000);
    for (const publisher of publishers) {
      await clock.complete(this.store.evidence.open(publisher, claim));
    }
    this.#readers = [];
    await this.#check();
  }

  async #end(): Promise<void> {
    const { clock } = this.machine;
    this.#sumCounters();
    await clock.advance(this.#random.between(0, 20) / 10);
    if (this.#random.chance(0.15)) {
      await clock.advance(1_000);
      for (const reader of this.#readers) reader.subscriber.close();
      await this.machine.stop(this.#process!);
      this.counts.stops++;
    } else {
      this.#cut();
    }
    await this.#start();
  }

  #cut(): void {
    if (this.#random.chance(0.5)) {
      this.machine.kill();
      this.counts.kills++;
    } else {
      this.machine.crash();
      this.counts.crashes++;
    }
  }

  #sumCounters(): void {
    const { counters, blockCache } = this.store;
    for (const name of ["realtimeTtvs", "catchUpTtvs", "handOvers", "fallBehinds"] as const) {
      this.counts[name] += counters[name];
    }
    this.counts.blocksRead += blockCache.counters.blocksRead;
  }

  // -------------------------------------------------------------- operations

  async #operate(): Promise<void> {
    const dice = this.#random.below(100);
    if (dice < 62) this.#append(dice < 15);
    else if (dice < 72) this.#mapWrite();
    else if (dice < 78) this.#increment();
    else if (dice < 82) this.#makeReader();
    else if (dice < 90) this.#giveRoom();
    else if (dice < 91) this.#background(this.store.rotate(), "rotations");
    else if (dice < 93) this.#background(this.store.checkpoint(), "checkpoints");
    if (this.#random.chance(0.3))
      await this.machine.clock.advance(this.#random.between(0, 30) / 10);
  }

  #append(withEvidence: boolean): void {
    const publisher = this.#random.pick(publishers);
    const topic = this.#random.pick(topics);
    const open = this.#openIds.get(publisher) ?? [];
    this.#openIds.set(publisher, open);
    let sent: Sent;
    const repeated = withEvidence ? open.find((candidate) => !candidate.acked) : undefined;
    if (repeated !== undefined && this.#random.chance(0.7)) {
      sent = repeated;
    } else {
      const packetId = withEvidence ? (this.#sent.length % 65_535) + 1 : undefined;
      sent = { value: `v${this.#sequence++}`, publisher, packetId, acked: false };
      this.#sent.push(sent);
      if (withEvidence) open.push(sent);
    }
    this.counts.appended++;
    const evidence =
      sent.packetId === undefined ? undefined : { ...claim, packetId: sent.packetId };
    const padding = this.#random.chance(0.05) ? "x".repeat(this.#random.below(70_000)) : "";
    const value = `${sent.value}|${padding}`;
    const request = appendRequest(topic, value, { publisher, evidence, qos: evidence ? 2 : 1 });
    this.store.append(request, (error, outcome) => {
      if (error !== undefined) throw error;
      sent.acked = true;
      this.counts.acked++;
      if (outcome?.kind === "repeat") this.counts.repeats++;
    });
  }

  #mapWrite(): void {
    const key = this.#random.pick(mapKeys);
    const state = this.#map.get(key)!;
    const value = `m${this.#sequence++}`;
    state.inFlight.add(value);
    this.counts.mapWrites++;
    this.#mapShard().write([{ key, value: Buffer.from(value) }], [], (error) => {
      if (error !== undefined) throw error;
      state.acked = value;
      // What was written before it is overwritten: no older value may come back.
      for (const older of [...state.inFlight]) {
        if (Number(older.slice(1)) <= Number(value.slice(1))) state.inFlight.delete(older);
      }
    });
  }

  #increment(): void {
    this.counts.transactions++;
    this.#counterTried++;
    const done = this.#mapShard().transact(async (tx) => {
      const entry = await tx.get("counter");
      const value = entry === undefined ? 0 : Number(entry.value.toString());
      tx.put("counter", Buffer.from(String(value + 1)));
    });
    done.then(
      () => {
        this.#counterAcked++;
      },
      () => {
        this.counts.conflicts++;
        this.#counterTried--;
      },
    );
  }

  #makeReader(): void {
    if (this.#readers.length >= 4) this.#readers.shift()!.subscriber.close();
    const chosen = filters.filter(() => this.#random.chance(0.5));
    const position = this.#random.chance(0.5) ? new Map<number, number>() : this.store.tail();
    this.#readers.push(new Reader(this.store, chosen, position, this.#random.below(40)));
  }

  #giveRoom(): void {
    for (const reader of this.#readers) {
      reader.room = this.#random.below(60);
      reader.subscriber.wake();
    }
  }

  #background(work: Promise<void>, name: "rotations" | "checkpoints"): void {
    const counts = this.counts;
    work.then(
      () => {
        counts[name]++;
      },
      () => undefined,
    );
  }

  #mapShard(): MapShard {
    return this.store.state("owner");
  }

  // -------------------------------------------------------------- checks

  async #check(): Promise<void> {
    const { clock } = this.machine;
    for (const reader of this.#readers) this.#checkReader(reader);
    const reader = new Reader(this.store, ["#", "$s/#"], new Map());
    await clock.runUntil(() => reader.subscriber.atTail, 60_000);
    this.#checkAll(reader);
    reader.subscriber.close();
    await this.#checkMap();
  }

  /** A reader with its own window and start sees commit order per shard, without repeats. */
  #checkReader(reader: Reader): void {
    const last = new Map<number, number>();
    for (const { shard, timeUs, value } of reader.received) {
      const before = last.get(shard) ?? 0;
      if (timeUs <= before) throw new Error(`reader: ${value} out of order or twice`);
      last.set(shard, timeUs);
    }
  }

  #checkAll(reader: Reader): void {
    this.#checkReader(reader);
    const seen = new Map<string, number>();
    const order = new Map<string, number>();
    const bySent = new Map(this.#sent.map((sent) => [sent.value, sent]));
    for (const { value } of reader.received) {
      const name = value.slice(0, value.indexOf("|"));
      seen.set(name, (seen.get(name) ?? 0) + 1);
      const sent = bySent.get(name);
      if (sent === undefined) throw new Error(`read ${name}, which was never appended`);
      const number = Number(name.slice(1));
      // A repeated append may come late: only those without evidence promise their order here.
      if (sent.packetId !== undefined) continue;
      const before = order.get(sent.publisher) ?? -1;
      if (number <= before) throw new Error(`${sent.publisher}: ${name} came after v${before}`);
      order.set(sent.publisher, number);
    }
    for (const [name, count] of seen)
      if (count !== 1) throw new Error(`${name} read ${count} times`);
    for (const sent of this.#sent) {
      if (sent.acked && !seen.has(sent.value)) throw new Error(`acked ${sent.value} is lost`);
    }
    // What was in flight and did not survive will not come back.
    for (const sent of [...this.#sent]) {
      if (sent.packetId === undefined && !sent.acked && seen.has(sent.value)) sent.acked = true;
    }
  }

  async #checkMap(): Promise<void> {
    const { clock } = this.machine;
    for (const [key, state] of this.#map) {
      const entry = await clock.complete(this.#mapShard().get(key));
      const value = entry?.value.toString();
      if (value === state.acked) continue;
      if (value !== undefined && state.inFlight.has(value)) {
        state.acked = value;
        for (const older of [...state.inFlight]) {
          if (Number(older.slice(1)) <= Number(value.slice(1))) state.inFlight.delete(older);
        }
        continue;
      }
      throw new Error(`map ${key} holds ${value}, acked ${state.acked}`);
    }
    const counter = await clock.complete(this.#mapShard().get("counter"));
    const count = counter === undefined ? 0 : Number(counter.value.toString());
    if (count < this.#counterAcked || count > this.#counterTried) {
      throw new Error(`counter ${count}, acked ${this.#counterAcked}, tried ${this.#counterTried}`);
    }
  }
}
