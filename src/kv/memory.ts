// The memory twin of LevelDB: the stores of one machine, which outlive the simulated processes that
// open them. `kill()` ends the process, `crash()` cuts the power: what survives follows
// `level-model.ts`. Without `random` it is a plain store in memory: no delays, no model, no loss
// but of everything at the end of the process.
//
// Invariants: everything follows from the seed and the order of calls; calls of a dead process
// never complete; what was synced survives. A store that is open is locked until its close or the
// end of its process.
// A test that keeps old code running after a kill gives each process its own `attach()`.

import {
  assert,
  type Cancel,
  type Clock,
  type FaultRule,
  type SeededRandom,
  SimCalls,
} from "../base/index.ts";
import { type Kv, type KvDriver, type KvOptions, type KvSalvage, kvErrors } from "./kv.ts";
import { LevelModel } from "./level-model.ts";
import { MemoryKv, type MemoryOperation, type MemoryStore, proofOf } from "./memory-store.ts";
import { ProcessDriver } from "./process-driver.ts";
import { SortedMap } from "./sorted-map.ts";

export type MemoryOptions = {
  readonly clock: Clock;
  /** Turns the model of sync and power loss on, and draws delays. */
  readonly random?: SeededRandom;
  /** Bounds of the drawn delays; default 0.01-0.1 ms a call, 0.1-2 ms a sync, 1-50 ms a flush. */
  readonly callMs?: readonly [low: number, high: number];
  readonly syncMs?: readonly [low: number, high: number];
  readonly flushMs?: readonly [low: number, high: number];
};

const defaultWriteBufferBytes = 4 * 1024 * 1024;
/** Log sizes are drawn over so many powers of two, so that small tests see switches as well. */
const logSizeSpread = 16;

export class MemoryDriver implements KvDriver {
  readonly #options: MemoryOptions;
  readonly #random: SeededRandom | undefined;
  readonly #calls: SimCalls<MemoryOperation>;
  readonly #stores = new Map<string, MemoryStore>();
  readonly #removing = new Set<MemoryStore>();
  #incarnations = 0;

  constructor(options: MemoryOptions) {
    this.#options = options;
    this.#random = options.random?.split("kv");
    this.#calls = new SimCalls<MemoryOperation>({
      clock: options.clock,
      delayMs: (operation) => this.#delayMs(operation),
      injected: (operation, path, errno) => {
        if (errno === "ENOSPC") return kvErrors.full({ path, errno });
        const reason = `${operation}: ${errno}`;
        return errno === "EBADMSG"
          ? kvErrors.corrupt({ path, reason })
          : kvErrors.failed({ path, errno, reason });
      },
    });
  }

  /** A view for one process: after the next `kill` or `crash` no call on it ever completes. */
  attach(): KvDriver {
    const { generation } = this.#calls;
    return new ProcessDriver(this, () => generation === this.#calls.generation);
  }

  open(path: string, options: KvOptions = {}): Promise<Kv> {
    const { generation } = this.#calls;
    const effect = (): Kv => {
      this.#refuseDamaged(path, options.proof);
      const store = this.#stores.get(path) ?? this.#create(path);
      if (store.isOpen) throw kvErrors.locked({ path });
      store.isOpen = true;
      this.#removing.delete(store);
      if (store.model !== undefined) store.visible = store.model.recover(this.#random);
      const bufferBytes = options.writeBufferBytes ?? defaultWriteBufferBytes;
      const switchBytes = (): number => this.#logBytes(bufferBytes);
      store.logBytesMax = switchBytes();
      return new MemoryKv(store, { calls: this.#calls, generation, switchBytes });
    };
    return this.#calls.promise(generation, { operation: "open", path, effect });
  }

  destroy(path: string): Promise<void> {
    const store = this.#stores.get(path);
    if (store !== undefined && !store.isOpen) this.#removing.add(store);
    const effect = (): void => {
      if (store?.isOpen === true) throw kvErrors.locked({ path });
      this.#stores.delete(path);
      if (store !== undefined) this.#removing.delete(store);
    };
    const { generation } = this.#calls;
    return this.#calls.promise(generation, { operation: "destroy", path, effect });
  }

  setAside(path: string, to: string): Promise<void> {
    const effect = (): void => {
      const store = this.#stores.get(path);
      if (store?.isOpen === true) throw kvErrors.locked({ path });
      this.#stores.delete(path);
      if (store !== undefined) this.#stores.set(to, { ...store, path: to });
    };
    const { generation } = this.#calls;
    return this.#calls.promise(generation, { operation: "destroy", path, effect });
  }

  sizeBytes(path: string): Promise<number> {
    const effect = (): number => {
      const view = this.#stores.get(path)?.visible.snapshot();
      let sizeBytes = 0;
      for (let place = view?.first; view !== undefined && place !== undefined; ) {
        const entry = view.at(place);
        if (entry === undefined) break;
        sizeBytes += entry[0].length + entry[1].length;
        place = view.after(place);
      }
      return sizeBytes;
    };
    const { generation } = this.#calls;
    return this.#calls.promise(generation, { operation: "read", path, effect });
  }

  /** What is left of a store after `damage`, in a store that opens. */
  salvage(path: string, to: string): Promise<KvSalvage> {
    const effect = (): KvSalvage => {
      const store = this.#stores.get(path);
      if (store?.isOpen === true) throw kvErrors.locked({ path });
      this.#stores.delete(path);
      const mended = this.#create(path);
      if (store === undefined) return { faults: ["it is gone"], isWhole: false };
      this.#stores.set(to, { ...store, path: to });
      const visible = store.model?.recover(this.#random) ?? store.visible;
      const view = visible.snapshot();
      const operations: Array<{ key: Buffer; value: Buffer }> = [];
      for (let place = view.first; ; place = view.after(place)) {
        const entry = view.at(place);
        if (entry === undefined) break;
        operations.push({ key: entry[0], value: entry[1] });
        mended.visible.set(...entry);
      }
      mended.model?.append({ operations, sizeBytes: 0 });
      mended.model?.syncCurrent();
      const isWhole = !store.isHollow;
      return { faults: isWhole ? [] : ["a part of it is missing"], isWhole };
    };
    const { generation } = this.#calls;
    return this.#calls.promise(generation, { operation: "destroy", path, effect });
  }

  condemn(path: string): Promise<void> {
    const effect = (): void => {
      const store = this.#stores.get(path);
      if (store !== undefined) store.isDamaged = true;
    };
    const { generation } = this.#calls;
    return this.#calls.promise(generation, { operation: "write", path, effect });
  }

  /** Process death: what the kernel was given survives, open stores are free to be opened again. */
  kill(): void {
    this.#calls.cutOff();
    for (const store of this.#stores.values()) {
      store.isOpen = false;
      store.isFlushing = false;
      store.whenFlushed.length = 0;
    }
    for (const store of this.#removing) {
      if (this.#random?.chance(0.5) === true) store.isDamaged = true;
    }
    this.#removing.clear();
  }

  /** Power loss. @throws without `random`: nothing models it. */
  crash(): void {
    const random = this.#random;
    assert(random !== undefined, "a power cut needs the model, which needs `random`");
    this.kill();
    for (const store of this.#stores.values()) store.model?.losePower(random);
  }

  /** Makes matching calls fail, hang or take longer; paths are those of stores. */
  inject(rule: FaultRule<MemoryOperation>): Cancel {
    return this.#calls.inject(rule);
  }

  /** Calls that an injected fault hit. */
  get faultCount(): number {
    return this.#calls.faultCount;
  }

  /** Withdraws all rules and lets the calls that hang complete. */
  heal(): void {
    this.#calls.heal();
  }

  /**
   * Rot of a store that nobody has open: it does not open until it is mended or gone, and holds what
   * `keeps` approves of, nothing by default.
   */
  damage(path: string, keeps: (key: Buffer) => boolean = () => false): void {
    this.hollow(path, keeps);
    this.#get(path).isDamaged = true;
  }

  /**
   * Rot without a word: the store opens as if nothing had happened, unless a proof from before is held
   * to it. One that is taken later speaks of what was left, and is held.
   */
  hollow(path: string, keeps: (key: Buffer) => boolean = () => false): void {
    const store = this.#get(path);
    store.isHollow = true;
    store.incarnation = ++this.#incarnations;
    store.model?.rot(keeps);
  }

  /** Values of a store, open or not, in the order of their keys. */
  peek(path: string): Array<readonly [key: Buffer, value: Buffer]> {
    const view = this.#stores.get(path)?.visible.snapshot();
    const found: Array<readonly [Buffer, Buffer]> = [];
    for (let place = view?.first; view !== undefined && place !== undefined; ) {
      const entry = view.at(place);
      if (entry === undefined) break;
      found.push(entry);
      place = view.after(place);
    }
    return found;
  }

  /** Rot of one value, also of a store that is open: flips bit `bit % 8` of its byte `bit / 8`. */
  flipBit(path: string, key: Uint8Array, bit: number): void {
    const value = this.#stores.get(path)?.visible.get(key);
    assert(value !== undefined, `no such value in store ${path}`);
    // What is on the medium shares the value.
    value[bit >>> 3] = (value[bit >>> 3] ?? 0) ^ (1 << (bit & 7));
  }

  #get(path: string): MemoryStore {
    const store = this.#stores.get(path);
    assert(store !== undefined && !store.isOpen, `no store ${path} at rest`);
    return store;
  }

  #refuseDamaged(path: string, proof: Uint8Array | undefined): void {
    const store = this.#stores.get(path);
    if (store?.isOpen === true) throw kvErrors.locked({ path });
    if (store?.isDamaged === true) {
      throw kvErrors.corrupt({ path, reason: "a part of it is missing" });
    }
    if (proof === undefined) return;
    const isWhole = store !== undefined && proofOf(store).equals(proof);
    if (!isWhole) throw kvErrors.corrupt({ path, reason: "it does not hold what it must" });
  }

  /** Paths of the stores that exist, sorted. */
  get paths(): string[] {
    return [...this.#stores.keys()].sort();
  }

  #create(path: string): MemoryStore {
    const store: MemoryStore = {
      path,
      incarnation: ++this.#incarnations,
      visible: new SortedMap(),
      model: this.#random === undefined ? undefined : new LevelModel(),
      isOpen: false,
      isDamaged: false,
      isHollow: false,
      isFlushing: false,
      logBytesMax: 0,
      whenFlushed: [],
    };
    this.#stores.set(path, store);
    return store;
  }

  #logBytes(bufferBytes: number): number {
    const random = this.#random;
    if (random === undefined) return Number.POSITIVE_INFINITY;
    return random.between(1, Math.max(1, bufferBytes >>> random.below(logSizeSpread)));
  }

  #delayMs(operation: MemoryOperation): number {
    if (this.#random === undefined) return 0;
    const { callMs, syncMs, flushMs } = this.#options;
    let [low, high] = callMs ?? [0.01, 0.1];
    if (operation === "sync") [low, high] = syncMs ?? [0.1, 2];
    if (operation === "flush") [low, high] = flushMs ?? [1, 50];
    return low + ((high - low) * this.#random.below(1000)) / 1000;
  }
}
