// Random histories of a store on a simulated machine, judged by the model beside it.
//
// One run is one seed: publishers append in three ways (store-publisher.ts), map keys are written
// and counted up in transactions, readers with small windows come, go, resume and change their
// filters, interest is counted and uncounted, generations end and are dropped, volumes run full,
// key-value stores and the log fail. Processes are killed and power is cut at any moment, also
// during recovery, and aimed at named phases. After each start:
// - every acked TTV is read once from position 0, in commit order, unless a drop reached it;
// - TTVs of one publisher come in the order in which they were appended;
// - each reader got what matched its filters, once, and was told of what it missed;
// - evidence is neither lost nor back after its release, and a repeat is stored once;
// - a map key holds its last acked value or a later one that was in flight.

import { hash32, type SeededRandom } from "../../src/base/index.ts";
import type { LocalStore, MapShard } from "../../src/store/index.ts";
import { type Process, StoreMachine, withBuffer } from "./store-machine.ts";
import { nameOf, ReaderModel, TtvModel } from "./store-model.ts";
import { Publisher, type Sent } from "./store-publisher.ts";

export const worldCountsZero = {
  appended: 0,
  acked: 0,
  repeats: 0,
  mapWrites: 0,
  transactions: 0,
  conflicts: 0,
  rotations: 0,
  drops: 0,
  checkpoints: 0,
  kills: 0,
  crashes: 0,
  aimedCuts: 0,
  recoveryCrashes: 0,
  stops: 0,
  fullTurns: 0,
  fullRefusals: 0,
  bufferRefusals: 0,
  resumed: 0,
  writeFaults: 0,
  failures: 0,
  realtimeTtvs: 0,
  catchUpTtvs: 0,
  handOvers: 0,
  fallBehinds: 0,
  missedReports: 0,
  resumedReaders: 0,
  filterChanges: 0,
  interestChanges: 0,
  blocksRead: 0,
  slabsRested: 0,
};
export type WorldCounts = typeof worldCountsZero;

const publisherNames = ["p0", "p1", "p2"];
const topics = ["a/1/x", "a/2/x", "a/3/y", "b", "c/d/e/f", "$s/x"];
const filters = ["#", "a/+/x", "b", "c/#", "$s/#", "a/3/y"];
const mapKeys = ["k/1", "k/2", "other/3"];
const phases = [
  "checkpoint.captured",
  "checkpoint.prepared",
  "checkpoint.committed",
  "checkpoint.released",
  "slab.sealed",
  "slab.written",
  "generation.rotated",
  "generation.sealed",
];
const roomyBytes = 2 ** 40;

/** A position from which a reader goes on, maybe in a later process. */
type Saved = { readonly filters: string[]; readonly positions: Map<number, number> };

export class StoreWorld {
  readonly machine: StoreMachine;
  readonly counts: WorldCounts = { ...worldCountsZero };
  readonly events: string[] = [];
  readonly #random: SeededRandom;
  readonly #model = new TtvModel();
  readonly #publishers: Publisher[];
  readonly #placeOf = new Map<string, { shard: number; timeUs: number }>();
  readonly #map = new Map<string, { acked: string | undefined; inFlight: Set<string> }>();
  /** How often each filter is counted as durable interest. */
  readonly #interest = new Map<string, number>();
  readonly #saved: Saved[] = [];
  readonly #faults: string[] = [];
  #counterAcked = 0;
  #counterTried = 0;
  #sequence = 0;
  #hash = 0;
  #process: Process | undefined;
  #isDead = false;
  #aim: string | undefined;
  #readers: ReaderModel[] = [];

  constructor(seed: number | string) {
    const sizes = /[67]$/.test(seed.toString()) ? withBuffer(96 * 1024) : {};
    this.machine = new StoreMachine({
      seed,
      segmentBytes: 32 * 1024,
      store: { openSlabsMax: 1, blockCacheBytesMax: 64 * 1024, ...sizes },
    });
    this.#random = this.machine.random.split("world");
    this.machine.onPhase = (name) => this.#phase(name);
    for (const key of mapKeys) this.#map.set(key, { acked: undefined, inFlight: new Set() });
    for (const filter of filters) if (this.#random.chance(0.7)) this.#interest.set(filter, 1);
    this.#publishers = publisherNames.map((name) => this.#createPublisher(name));
  }

  get store(): LocalStore {
    return this.#process!.store;
  }

  /** Of all that was acked and received, in order: equal for two runs of one seed. */
  get hash(): number {
    return this.#hash;
  }

  async run(operations: number, endings: number): Promise<void> {
    await this.#start();
    const perLife = Math.ceil(operations / (endings + 1));
    for (let life = 0; life <= endings; life++) {
      for (let n = 0; n < perLife; n++) await this.#operate();
      if (life < endings) await this.#end();
    }
    this.#heal();
    if (!this.#isDead) await this.machine.clock.advance(8_000);
    if (this.#isDead || this.#hasFailed()) await this.#end();
    this.#aim = undefined;
    await this.#check();
    this.#sumCounters();
    await this.machine.stop(this.#process!);
  }

  // -------------------------------------------------------------- lives

  async #start(): Promise<void> {
    const { clock } = this.machine;
    for (;;) {
      const opening = this.machine.open();
      opening.catch(() => undefined);
      if (this.#random.chance(0.2) && this.#sequence > 0) {
        await clock.advance(this.#random.between(0, 30));
        this.#cut();
        this.counts.recoveryCrashes++;
        continue;
      }
      this.#process = await clock.complete(opening, 600_000);
      break;
    }
    this.#isDead = false;
    for (const [filter, count] of this.#interest) {
      for (let n = 0; n < count; n++) this.store.interest.add(filter, new Map());
    }
    await clock.complete(this.store.start(), 600_000);
    for (const publisher of this.#publishers) await clock.complete(publisher.connect(this.store));
    await this.#check();
    this.#readers = [];
    this.#aim = this.#random.chance(0.5) ? this.#random.pick(phases) : undefined;
  }

  async #end(): Promise<void> {
    const { clock } = this.machine;
    this.#aim = undefined;
    if (!this.#isDead) {
      this.#sumCounters();
      await clock.advance(this.#random.between(0, 20) / 10);
      if (this.#random.chance(0.15) && !this.#hasFailed()) await this.#stop();
      else this.#cut();
    }
    for (const reader of this.#readers) this.#saveReader(reader);
    this.#heal();
    await this.#start();
  }

  async #stop(): Promise<void> {
    if (this.#random.chance(0.5)) await this.machine.clock.advance(1_000);
    if (this.#hasFailed()) return this.#cut();
    await this.machine.stop(this.#process!);
    this.counts.stops++;
  }

  #cut(): void {
    if (this.#random.chance(0.5)) {
      this.machine.kill();
      this.counts.kills++;
    } else {
      this.machine.crash();
      this.counts.crashes++;
    }
    this.#isDead = true;
  }

  #phase(name: string): void {
    if (name !== this.#aim || this.#isDead || !this.#random.chance(0.2)) return;
    this.#sumCounters();
    this.counts.aimedCuts++;
    this.#cut();
  }

  #hasFailed(): boolean {
    return this.store.refusal?.code === "STORE_FAILED";
  }

  #heal(): void {
    const { disk, kv } = this.machine;
    disk.setCapacity(roomyBytes);
    disk.heal();
    kv.heal();
  }

  #sumCounters(): void {
    const { counters, blockCache, openSlabs } = this.store;
    for (const name of [
      ...(["realtimeTtvs", "catchUpTtvs", "handOvers", "fallBehinds"] as const),
      "missedReports" as const,
    ]) {
      this.counts[name] += counters[name];
    }
    this.counts.blocksRead += blockCache.counters.blocksRead;
    this.counts.slabsRested += openSlabs.counters.slabsRested;
  }

  // -------------------------------------------------------------- operations

  async #operate(): Promise<void> {
    if (this.#isDead || this.#hasFailed()) {
      if (!this.#isDead) this.counts.failures++;
      await this.#end();
    }
    const dice = this.#random.below(200);
    if (dice < 120) this.#append(dice);
    else if (dice < 138) this.#mapWrite();
    else if (dice < 150) this.#increment();
    else if (dice < 158) this.#makeReader();
    else if (dice < 172) this.#giveRoom();
    else if (dice < 178) this.#changeFilter();
    else if (dice < 182) this.#changeInterest();
    else if (dice < 185) this.#background(this.store.rotate(), "rotations");
    else if (dice < 189) this.#background(this.store.checkpoint(), "checkpoints");
    else if (dice < 191) this.#drop();
    else if (dice < 193) this.#fault();
    else if (dice < 194) this.#fillDisk();
    else if (dice < 200) this.#heal();
    if (this.#random.chance(0.3)) {
      await this.machine.clock.advance(this.#random.between(0, 30) / 10);
    }
  }

  #append(dice: number): void {
    const { refusal } = this.store;
    if (refusal !== undefined) {
      this.counts[refusal.code === "STORE_DISK_FULL" ? "fullRefusals" : "bufferRefusals"]++;
      if (this.#random.chance(0.1)) this.store.onceWritable(() => this.counts.resumed++);
      return;
    }
    this.counts.appended++;
    const publisher = this.#random.pick(this.#publishers);
    const topic = this.#random.pick(topics);
    if (dice < 30) publisher.appendWithEvidence(this.store, topic);
    else if (dice < 45) publisher.appendAsWriter(this.store, topic);
    else publisher.append(this.store, topic);
  }

  #createPublisher(name: string): Publisher {
    return new Publisher(name, this.machine.random.split(name), {
      nextNumber: () => this.#sequence++,
      onAcked: (publisher, sent, timeUs) => this.#acked(publisher, sent, timeUs),
      onRepeat: () => {
        this.counts.repeats++;
      },
      onRefused: (error) => this.#refused(error.code),
      fault: (message) => this.#faults.push(message),
    });
  }

  #acked({ name }: Publisher, sent: Sent, timeUs: number | undefined): void {
    this.counts.acked++;
    this.#fold(`${sent.name} ${timeUs}`);
    if (timeUs === undefined || !sent.keep) return;
    const { logShards } = this.store;
    this.#note(logShards[hash32(name) % logShards.length]!, timeUs, sent);
  }

  #note(shard: number, timeUs: number, truth: { name: string; topic: string }): void {
    this.#model.add(shard, timeUs, truth);
    this.#placeOf.set(truth.name, { shard, timeUs });
  }

  #refused(code: string): void {
    if (code === "STORE_CLOSED" || code === "STORE_FAILED") return;
    this.#faults.push(`an append was refused with ${code}`);
  }

  #mapWrite(): void {
    const key = this.#random.pick(mapKeys);
    const state = this.#map.get(key)!;
    const value = `m${this.#sequence++}`;
    state.inFlight.add(value);
    this.counts.mapWrites++;
    this.#mapShard().write([{ key, value: Buffer.from(value) }], [], (error) => {
      if (error !== undefined) return this.#refused(error.code);
      this.#settleMap(state, value);
    });
  }

  #settleMap(state: { acked: string | undefined; inFlight: Set<string> }, value: string): void {
    state.acked = value;
    // What was written before it is overwritten: no older value may come back.
    for (const older of [...state.inFlight]) {
      if (Number(older.slice(1)) <= Number(value.slice(1))) state.inFlight.delete(older);
    }
  }

  #increment(): void {
    this.counts.transactions++;
    this.#counterTried++;
    let attempts = 0;
    const done = this.#mapShard().transact(async (tx) => {
      attempts++;
      const entry = await tx.get("counter");
      const value = entry === undefined ? 0 : Number(entry.value.toString());
      tx.put("counter", Buffer.from(String(value + 1)));
    });
    done.then(
      () => {
        this.#counterAcked++;
        if (attempts > 1) this.counts.conflicts++;
      },
      (error: { code?: string }) => this.#refused(error.code ?? String(error)),
    );
  }

  #background(work: Promise<void>, name: "rotations" | "checkpoints" | "drops"): void {
    work.then(
      () => {
        this.counts[name]++;
      },
      () => undefined,
    );
  }

  #drop(): void {
    const times = [...this.#placeOf.values()].map(({ timeUs }) => timeUs);
    if (times.length === 0) return;
    const untilUs = this.#random.pick(times);
    for (const shard of this.store.logShards) this.#model.dropped(shard, untilUs);
    this.#background(this.store.dropUntil(untilUs), "drops");
  }

  // -------------------------------------------------------------- readers and interest

  #makeReader(): void {
    if (this.#readers.length >= 4) {
      const oldest = this.#readers.shift()!;
      this.#saveReader(oldest);
      oldest.close();
      this.#checkReader(oldest);
    }
    const room = this.#random.below(40);
    const saved = this.#saved.pop();
    if (saved !== undefined && this.#random.chance(0.5)) {
      this.counts.resumedReaders++;
      const { positions } = saved;
      this.#readers.push(
        new ReaderModel(this.store, saved.filters, { start: new Map(), positions, room }),
      );
      return;
    }
    const chosen = filters.filter(() => this.#random.chance(0.4));
    const positions = this.#random.chance(0.5) ? new Map() : this.store.tail();
    const start = this.#random.chance(0.5) ? new Map() : this.#someStart();
    this.#readers.push(new ReaderModel(this.store, chosen, { start, positions, room }));
  }

  #saveReader(reader: ReaderModel): void {
    reader.end();
    this.#saved.push({
      filters: reader.filters,
      positions: reader.reader.subscriber.positions(),
    });
    if (this.#saved.length > 4) this.#saved.shift();
  }

  #someStart(): Map<number, number> {
    const start = this.store.tail();
    const back = this.#random.below(3_000);
    for (const [shard, timeUs] of start) start.set(shard, Math.max(0, timeUs - back));
    return start;
  }

  #giveRoom(): void {
    for (const { reader } of this.#readers) {
      reader.room = this.#random.below(60);
      reader.subscriber.wake();
    }
  }

  #changeFilter(): void {
    if (this.#readers.length === 0) return;
    const reader = this.#random.pick(this.#readers);
    const filter = this.#random.pick(filters);
    if (this.#random.chance(0.5)) reader.setFilter(filter, this.#someStart());
    else if (reader.filters.includes(filter)) reader.removeFilter(filter);
    this.counts.filterChanges++;
  }

  #changeInterest(): void {
    const filter = this.#random.pick(filters);
    const count = this.#interest.get(filter) ?? 0;
    this.counts.interestChanges++;
    if (count > 0 && this.#random.chance(0.5)) {
      this.store.interest.remove(filter);
      this.#interest.set(filter, count - 1);
    } else {
      this.store.interest.add(filter, this.store.tail());
      this.#interest.set(filter, count + 1);
    }
  }

  // -------------------------------------------------------------- faults

  #fault(): void {
    const { disk, kv } = this.machine;
    this.counts.writeFaults++;
    const fails = this.#random.chance(0.5) ? "ENOSPC" : "EIO";
    const skip = this.#random.below(4);
    const dice = this.#random.below(20);
    if (dice === 0) disk.inject({ on: "fdatasync", path: "data/log", fails: "EIO", skip });
    else if (dice === 1) kv.inject({ on: "sync", fails: "EIO", skip });
    else if (dice < 5) kv.inject({ on: "sync", fails: "ENOSPC", skip });
    else if (dice < 8) kv.inject({ on: "flush", fails, skip });
    else kv.inject({ on: "write", fails, skip, times: this.#random.between(1, 3) });
    if (this.#random.chance(0.3)) kv.inject({ on: "open", fails: "ENOSPC", times: 2 });
  }

  #fillDisk(): void {
    const { disk } = this.machine;
    this.counts.fullTurns++;
    disk.setCapacity(roomyBytes - disk.freeBytes + this.#random.below(24 * 1024));
  }

  #mapShard(): MapShard {
    return this.store.state("owner");
  }

  // -------------------------------------------------------------- checks

  async #check(): Promise<void> {
    const { clock } = this.machine;
    const options = { start: new Map(), positions: new Map(), room: 1_000_000 };
    const full = new ReaderModel(this.store, ["#", "$s/#"], options);
    await clock.runUntil(() => full.reader.subscriber.atTail || this.#hasFailed(), 60_000);
    if (this.#hasFailed()) throw new Error("the store failed during a check");
    this.#learn(full);
    full.check(this.#model);
    full.close();
    for (const reader of this.#readers) this.#checkReader(reader);
    for (const filter of filters) this.#checkLastMatch(filter);
    await this.#checkMap();
    if (this.#faults.length > 0) throw new Error(this.#faults.join("; "));
  }

  #checkReader(reader: ReaderModel): void {
    reader.check(this.#model);
    for (const { value, timeUs } of reader.reader.received)
      this.#fold(`${nameOf(value)} ${timeUs}`);
  }

  /** What a full read shows is the truth from now on; it has to have all that was acked. */
  #learn({ reader }: ReaderModel): void {
    const seen = new Map<string, number>();
    const last = new Map<string, number>();
    const bySent = new Map<string, [publisher: string, sent: Sent]>();
    for (const { name, sent } of this.#publishers) {
      for (const each of sent) bySent.set(each.name, [name, each]);
    }
    for (const { value, shard, timeUs } of reader.received) {
      const name = nameOf(value);
      seen.set(name, (seen.get(name) ?? 0) + 1);
      const [publisher, sent] = bySent.get(name) ?? [];
      if (sent === undefined) throw new Error(`read ${name}, which was never appended`);
      this.#note(shard, timeUs, sent);
      // A repeated append may come late: only the others promise their order.
      if (sent.kind === "evidence") continue;
      const line = `${publisher} ${sent.kind}`;
      const before = last.get(line) ?? -1;
      if (sent.number <= before) throw new Error(`${line}: ${name} came after v${before}`);
      last.set(line, sent.number);
    }
    for (const publisher of this.#publishers) {
      publisher.check(seen, ({ name }) => this.#isDropped(name));
    }
  }

  #isDropped(name: string): boolean {
    const place = this.#placeOf.get(name);
    return place !== undefined && place.timeUs <= this.#model.droppedUntil(place.shard);
  }

  #checkLastMatch(filter: string): void {
    for (const shard of this.store.logShards) {
      const lastMatchUs = this.store.interest.lastMatchUs(filter, shard);
      if (lastMatchUs !== undefined) this.#model.checkLastMatch(filter, shard, lastMatchUs);
    }
  }

  async #checkMap(): Promise<void> {
    const { clock } = this.machine;
    for (const [key, state] of this.#map) {
      const entry = await clock.complete(this.#mapShard().get(key));
      const value = entry?.value.toString();
      this.#fold(`${key} ${value}`);
      if (value === state.acked) continue;
      if (value === undefined || !state.inFlight.has(value)) {
        throw new Error(`map ${key} holds ${value}, acked ${state.acked}`);
      }
      this.#settleMap(state, value);
    }
    const counter = await clock.complete(this.#mapShard().get("counter"));
    const count = counter === undefined ? 0 : Number(counter.value.toString());
    if (count < this.#counterAcked || count > this.#counterTried) {
      throw new Error(`counter ${count}, acked ${this.#counterAcked}, tried ${this.#counterTried}`);
    }
  }

  #fold(text: string): void {
    this.#hash = hash32(text, this.#hash);
  }
}
