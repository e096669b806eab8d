// Random histories of a store on a simulated machine, judged by the model beside it.
//
// One run is one seed: publishers append in three ways (store-publisher.ts), map keys are written
// and counted up in transactions, readers come, go, resume and change their filters, generations end
// and are dropped; besides, what its seed draws (store-features.ts, store-upkeep.ts) and what goes
// wrong with the volume (store-faults.ts). Processes are killed and power is cut at any moment, also
// during recovery, and aimed at named phases. After each start:
// - every acked TTV is read once from position 0, in commit order, unless a drop reached it;
// - TTVs of one publisher come in the order in which they were appended;
// - each reader got what matched its filters, once, and was told of what it missed;
// - evidence is neither lost nor back after its release, and a repeat is stored once;
// - a map key holds its last acked value or a later one that was in flight.

import { hash32, SeededRandom } from "../../src/base/index.ts";
import type { LocalStore, MapShard } from "../../src/store/index.ts";
import { Faults, type faultCountsZero } from "./store-faults.ts";
import { drawFeatures, type Features, settingsOf } from "./store-features.ts";
import { type Process, StoreMachine } from "./store-machine.ts";
import { MapWork, type mapCountsZero } from "./store-map-work.ts";
import { type Debtor, nameOf, ReaderModel, settleDebts, TtvModel } from "./store-model.ts";
import { Publisher, type Sent } from "./store-publisher.ts";
import { Upkeep, type upkeepCountsZero } from "./store-upkeep.ts";

export const worldCountsZero = {
  appended: 0,
  acked: 0,
  repeats: 0,
  rotations: 0,
  repacks: 0,
  checkpoints: 0,
  kills: 0,
  crashes: 0,
  aimedCuts: 0,
  recoveryCrashes: 0,
  stops: 0,
  fullRefusals: 0,
  bufferRefusals: 0,
  quotaRefusals: 0,
  resumed: 0,
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
  windowSeeks: 0,
  rowSeeks: 0,
  rotationsDue: 0,
  generationsExpired: 0,
  generationsConsumed: 0,
  generationsSacrificed: 0,
  quotaNearTimes: 0,
  quotaFullTimes: 0,
  shortWrites: 0,
  tornSectors: 0,
  databaseRefusals: 0,
  lostAndTold: 0,
  lostAndToldLater: 0,
  damageEvents: 0,
};
export type WorldCounts = typeof worldCountsZero &
  typeof mapCountsZero &
  typeof upkeepCountsZero &
  typeof faultCountsZero;

/** What speaks of damage in the log of events. */
const damageEvent = /damage|mended|lost|unreadable|set_aside|quarantine|copy_missing|not_written/;

const publisherNames = ["p0", "p1", "p2"];
const topics = ["a/1/x", "a/2/x", "a/3/y", "b", "c/d/e/f", "$s/x"];
/** Theirs is a database that comes and goes. */
const movingTopics = ["m/1", "m/2", "m/3/x"];
const filters = ["#", "a/+/x", "b", "c/#", "$s/#", "a/3/y", "m/+"];
const phases = [
  "checkpoint.captured",
  "checkpoint.prepared",
  "checkpoint.committed",
  "checkpoint.released",
  "slab.sealed",
  "slab.written",
  "generation.rotated",
  "generation.sealed",
  "repack.begun",
  "repack.window",
  "repack.synced",
  "repack.switched",
];

/** A position from which a reader goes on, maybe in a later process. */
type Saved = { readonly filters: string[]; readonly positions: Map<number, number> };

export class StoreWorld {
  readonly machine: StoreMachine;
  readonly features: Features;
  readonly #counts: typeof worldCountsZero = { ...worldCountsZero };
  readonly #random: SeededRandom;
  readonly #model = new TtvModel();
  readonly #publishers: Publisher[];
  readonly #placeOf = new Map<string, { shard: number; timeUs: number }>();
  readonly #map: MapWork;
  readonly #upkeep: Upkeep;
  readonly #volume: Faults;
  /** How often each filter is counted as durable interest. */
  readonly #interest = new Map<string, number>();
  readonly #saved: Saved[] = [];
  readonly #faults: string[] = [];
  #sequence = 0;
  #hash = 0;
  #process: Process | undefined;
  #isDead = false;
  #aim: string | undefined;
  #readers: ReaderModel[] = [];
  /** Where damage was done, and how many events there were before the start that met it. */
  readonly #rotten: string[] = [];
  readonly #debtors: Debtor[] = [];
  #eventsBefore = 0;
  #isLogProved = false;

  constructor(seed: number | string) {
    const random = new SeededRandom(`features ${seed}`);
    this.features = drawFeatures(random);
    const store = settingsOf(this.features);
    this.machine = new StoreMachine({ seed, segmentBytes: 32 * 1024, tornChance: 1 / 2, store });
    this.#random = this.machine.random.split("world");
    this.machine.onPhase = (name) => this.#phase(name);
    const fault = (message: string): void => void this.#faults.push(message);
    const { machine, features } = this;
    this.#upkeep = new Upkeep(machine, this.#random.split("upkeep"), features, this.#model, fault);
    this.#volume = new Faults(machine, this.#random.split("volume"));
    this.#map = new MapWork(machine.clock, this.#random, {
      nextNumber: () => this.#sequence++,
      onRefused: (code) => this.#refused(code),
      onState: (text) => this.#fold(text),
    });
    for (const filter of filters) if (this.#random.chance(0.7)) this.#interest.set(filter, 1);
    this.#publishers = publisherNames.map((name) => this.#createPublisher(name));
  }

  get counts(): WorldCounts {
    const { shortWrites, tornSectors } = this.machine.disk.counters;
    const own = { ...this.#counts, shortWrites, tornSectors };
    return { ...own, ...this.#map.counts, ...this.#upkeep.counts, ...this.#volume.counts };
  }

  /** Where damage was done. */
  get rotten(): readonly string[] {
    return this.#rotten;
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
    this.#volume.heal();
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
    this.#upkeep.beforeStart();
    for (;;) {
      const opening = this.machine.open();
      opening.catch(() => undefined);
      if (this.#random.chance(0.2) && this.#sequence > 0) {
        await clock.advance(this.#random.between(0, 30));
        this.#cut();
        this.#counts.recoveryCrashes++;
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
    this.#upkeep.afterStart(this.store);
    for (const publisher of this.#publishers) await clock.complete(publisher.connect(this.store));
    await this.#check();
    this.#readers = [];
    this.#aim = this.#random.chance(0.5) ? this.#random.pick(phases) : undefined;
  }

  async #end(): Promise<void> {
    this.#isLogProved = false;
    this.#aim = undefined;
    if (!this.#isDead) {
      this.#sumCounters();
      await this.#beforeEnd();
      if (!this.#isDead) await this.#endProcess();
    }
    for (const reader of this.#readers) this.#saveReader(reader);
    this.#volume.heal();
    if (this.features.damage && this.#random.chance(0.7)) await this.#rot();
    await this.#start();
  }

  /** From here on less may be there than was acked; whoever misses it must be told. */
  async #rot(): Promise<void> {
    this.#rotten.push(await this.#volume.rot(this.#isLogProved ? undefined : "data/log"));
    this.#eventsBefore = this.machine.events.length;
    for (const publisher of this.#publishers) publisher.forget();
  }

  /** While it is packed, read or left alone. */
  #rotWithin(): void {
    const rotten = this.#volume.rotBlock();
    if (rotten === undefined) return;
    this.#rotten.push(`a block of ${rotten.path}, at work`);
    this.#model.rotted(rotten.shard, rotten.timesUs);
  }

  async #endProcess(): Promise<void> {
    if (this.#random.chance(0.15) && !this.#hasFailed()) await this.#stop();
    else this.#cut();
  }

  /** Most ends find a write of many sectors on its way to the medium. */
  async #beforeEnd(): Promise<void> {
    const { clock } = this.machine;
    await clock.advance(this.#random.between(0, 20) / 10);
    if (this.features.damage) return this.#proveLog();
    if (this.#isDead || this.#random.chance(0.1)) return;
    this.#volume.heal();
    await clock.advance(30);
    if (this.#isDead || this.store.refusal !== undefined) return;
    for (const publisher of this.#publishers) publisher.append(this.store, "b", 3_000);
    await clock.advance(this.#random.between(5, 40) / 100);
  }

  /**
   * Damage to the last flush of all looks like a write that a power cut has torn. So the log is
   * damaged only where a later flush, that of its idling, says what was synced.
   */
  async #proveLog(): Promise<void> {
    this.#volume.heal();
    await this.machine.clock.advance(1_500);
    if (this.#isDead || this.store.refusal !== undefined) return;
    this.#isLogProved = this.#process?.log.pendingBytes === 0;
  }

  async #stop(): Promise<void> {
    if (this.#random.chance(0.5)) await this.machine.clock.advance(1_000);
    if (this.#hasFailed()) return this.#cut();
    await this.machine.stop(this.#process!);
    this.#counts.stops++;
  }

  #cut(): void {
    if (this.#random.chance(0.35)) {
      this.machine.kill();
      this.#counts.kills++;
    } else {
      this.machine.crash();
      this.#counts.crashes++;
    }
    this.#isDead = true;
  }

  #phase(name: string): void {
    if (name !== this.#aim || this.#isDead || !this.#random.chance(0.2)) return;
    this.#sumCounters();
    this.#counts.aimedCuts++;
    this.#cut();
  }

  #hasFailed(): boolean {
    return this.store.refusal?.code === "STORE_FAILED";
  }

  #sumCounters(): void {
    const { counters, blockCache, openSlabs, slabCounters } = this.store;
    for (const name of [
      ...(["realtimeTtvs", "catchUpTtvs", "handOvers", "fallBehinds"] as const),
      "missedReports" as const,
      ...(["rotationsDue", "generationsExpired", "generationsConsumed"] as const),
      ...(["generationsSacrificed", "quotaNearTimes", "quotaFullTimes"] as const),
    ]) {
      this.#counts[name] += counters[name];
    }
    this.#counts.blocksRead += blockCache.counters.blocksRead;
    this.#counts.slabsRested += openSlabs.counters.slabsRested;
    this.#counts.windowSeeks += slabCounters.windowSeeks;
    this.#counts.rowSeeks += slabCounters.rowSeeks;
  }

  // -------------------------------------------------------------- operations

  async #operate(): Promise<void> {
    if (this.#isDead || this.#hasFailed()) {
      if (!this.#isDead) this.#counts.failures++;
      await this.#end();
    }
    const dice = this.#random.below(200);
    if (dice < 120) this.#append(dice);
    else if (dice < 138) this.#map.write(this.#mapShard());
    else if (dice < 150) this.#map.increment(this.#mapShard());
    else if (dice < 158) this.#makeReader();
    else if (dice < 172) this.#giveRoom();
    else if (dice < 178) this.#changeFilter();
    else if (dice < 182) this.#changeInterest();
    else if (dice < 185) this.#background(this.store.rotate(), "rotations");
    else if (dice < 188) this.#background(this.store.checkpoint(), "checkpoints");
    else if (dice < 189) {
      this.#background(this.store.operator.repack({ all: true }), "repacks");
      if (this.features.damage && this.#random.chance(0.5)) this.#rotWithin();
    } else if (dice < 191) this.#drop();
    else if (dice < 193) this.#volume.inject();
    else if (dice < 194) this.#volume.fillDisk();
    else if (dice < 197) this.#volume.heal();
    else if (dice < 199) this.#operateStore();
    else if (this.#random.chance(0.5)) await this.machine.clock.advance(2_500);
    if (this.#random.chance(0.3)) {
      await this.machine.clock.advance(this.#random.between(0, 30) / 10);
    }
  }

  /** What is under way to a database when it comes or goes must end well, too. */
  #operateStore(): void {
    this.#upkeep.operate(this.store);
    if (!this.features.databases || this.store.refusal !== undefined) return;
    for (const topic of movingTopics) this.#random.pick(this.#publishers).append(this.store, topic);
  }

  #append(dice: number): void {
    const { refusal } = this.store;
    if (refusal !== undefined) {
      const { code } = refusal;
      if (code === "STORE_QUOTA_EXCEEDED") this.#counts.quotaRefusals++;
      else this.#counts[code === "STORE_DISK_FULL" ? "fullRefusals" : "bufferRefusals"]++;
      if (this.#random.chance(0.1)) this.store.onceWritable(() => this.#counts.resumed++);
      return;
    }
    this.#counts.appended++;
    const publisher = this.#random.pick(this.#publishers);
    const moves = this.features.databases && this.#random.chance(0.3);
    const topic = this.#random.pick(moves ? movingTopics : topics);
    if (dice < 30) publisher.appendWithEvidence(this.store, topic);
    else if (dice < 45 && !moves) publisher.appendAsWriter(this.store, topic);
    else if (dice < 60) publisher.appendRun(this.store, topic);
    else publisher.append(this.store, topic);
  }

  #createPublisher(name: string): Publisher {
    return new Publisher(name, this.machine.random.split(name), {
      nextNumber: () => this.#sequence++,
      onAcked: (sent, timeUs, shard) => this.#acked(sent, timeUs, shard),
      onRepeat: () => {
        this.#counts.repeats++;
      },
      onRefused: (error) => this.#refused(error.code),
      fault: (message) => this.#faults.push(message),
    });
  }

  #acked(sent: Sent, timeUs: number | undefined, shard: number): void {
    this.#counts.acked++;
    this.#fold(`${sent.name} ${timeUs}`);
    if (timeUs !== undefined && sent.keep) this.#note(shard, timeUs, sent);
  }

  #note(shard: number, timeUs: number, truth: { name: string; topic: string }): void {
    this.#model.add(shard, timeUs, truth);
    this.#placeOf.set(truth.name, { shard, timeUs });
  }

  #refused(code: string): void {
    if (code === "STORE_CLOSED" || code === "STORE_FAILED") return;
    // A writer sends again what its process had not heard of, without asking whether it may.
    if (code === "STORE_QUOTA_EXCEEDED" && this.features.quota !== "none") return;
    if (code === "STORE_DATABASE_DROPPED" && this.features.databases) {
      this.#counts.databaseRefusals++;
      return;
    }
    this.#faults.push(`an append was refused with ${code}`);
  }

  #background(work: Promise<unknown>, name: "rotations" | "checkpoints" | "repacks"): void {
    work.then(
      () => {
        this.#counts[name]++;
      },
      () => undefined,
    );
  }

  #drop(): void {
    const times = [...this.#placeOf.values()].map(({ timeUs }) => timeUs);
    if (times.length === 0) return;
    const untilUs = this.#random.pick(times);
    this.#upkeep.drop(this.store, untilUs);
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
      this.#counts.resumedReaders++;
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
    this.#counts.filterChanges++;
  }

  #changeInterest(): void {
    const filter = this.#random.pick(filters);
    const count = this.#interest.get(filter) ?? 0;
    this.#counts.interestChanges++;
    if (count > 0 && this.#random.chance(0.5)) {
      this.store.interest.remove(filter);
      this.#interest.set(filter, count - 1);
    } else {
      this.store.interest.add(filter, this.store.tail());
      this.#interest.set(filter, count + 1);
    }
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
    this.#upkeep.learn(this.store);
    this.#learn(full);
    full.check(this.#model);
    full.close();
    for (const reader of this.#readers) this.#checkReader(reader);
    for (const debtor of this.#debtors.splice(0)) {
      this.#counts.lostAndToldLater += await settleDebts(debtor, this.store, clock, this.#model);
    }
    for (const filter of filters) this.#checkLastMatch(filter);
    await this.#map.check(this.#mapShard(), (what) => this.#expectDamageEvent(what));
    if (this.#faults.length > 0) throw new Error(this.#faults.join("; "));
  }

  #checkReader(reader: ReaderModel): void {
    if (!this.#isDead) this.#upkeep.learn(this.store);
    const debtor = reader.check(this.#model);
    if (debtor.debts.length > 0) this.#debtors.push(debtor);
    for (const { value, timeUs } of reader.reader.received)
      this.#fold(`${nameOf(value)} ${timeUs}`);
  }

  /** What a full read shows is the truth from now on; it has to have all that was acked. */
  #learn(full: ReaderModel): void {
    const { reader } = full;
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
      const line = `${publisher} ${sent.kind} ${shard}`;
      const before = last.get(line) ?? -1;
      if (sent.number <= before) throw new Error(`${line}: ${name} came after v${before}`);
      last.set(line, sent.number);
    }
    this.#learnLosses(full);
    for (const publisher of this.#publishers) {
      // What damage took counts as lost, also where a drop that was asked for may have taken it.
      publisher.check(seen, (sent) => this.#isLost(sent, full) || this.#isDropped(sent));
    }
  }

  #isDropped({ name, shards }: Sent): boolean {
    const place = this.#placeOf.get(name);
    if (place !== undefined && place.timeUs <= this.#model.droppedUntil(place.shard)) return true;
    // A repeat may have gone to a database that came, or went, since.
    return [...shards].some((shard) => this.#model.droppedUntil(shard) === Number.MAX_SAFE_INTEGER);
  }

  /** What damage took, and who reads everything is told of, acked or only seen before. */
  #learnLosses(full: ReaderModel): void {
    if (this.#rotten.length === 0) return;
    for (const shard of this.store.logShards) {
      const seen = new Set<number>();
      for (const each of full.reader.received) if (each.shard === shard) seen.add(each.timeUs);
      for (const [timeUs, truth] of this.#model.of(shard)) {
        if (truth.isLost || seen.has(timeUs) || !full.reportFor(shard, timeUs)) continue;
        truth.isLost = true;
        this.#counts.lostAndTold++;
      }
    }
  }

  #isLost({ name }: Sent, full: ReaderModel): boolean {
    if (this.#rotten.length === 0) return false;
    const place = this.#placeOf.get(name);
    if (place === undefined) return full.reader.missedReports.length > 0;
    return this.#model.of(place.shard).get(place.timeUs)?.isLost === true;
  }

  /** Damage took something: the start that met it must have said so. */
  #expectDamageEvent(what: string): void {
    const events = this.machine.events.slice(this.#eventsBefore).map(({ event }) => event);
    if (this.#rotten.length > 0 && events.some((event) => damageEvent.test(event))) {
      this.#counts.damageEvents++;
      return;
    }
    throw new Error(what);
  }

  #checkLastMatch(filter: string): void {
    for (const shard of this.store.logShards) {
      const lastMatchUs = this.store.interest.lastMatchUs(filter, shard);
      if (lastMatchUs !== undefined) this.#model.checkLastMatch(filter, shard, lastMatchUs);
    }
  }

  #fold(text: string): void {
    this.#hash = hash32(text, this.#hash);
  }
}
