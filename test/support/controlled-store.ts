// A store with hands on it: it refuses appends, fails them, or keeps their completion back until the
// test lets them go, in any order. Everything else is done by the store inside, fake or real.

import type { Cancel, Clock, CodedError } from "../../src/base/index.ts";
import type {
  AppendDone,
  AppendOutcome,
  AppendRequest,
  EvidenceFace,
  InterestFace,
  MapShard,
  ShardNumber,
  Store,
  Subscriber,
  SubscriberOptions,
  Ttv,
  TtvRef,
  WriterStamp,
} from "../../src/store/index.ts";
export type KeptAppend = {
  readonly request: AppendRequest;
  /** Durable now: the store hands it on and tells the caller. */
  commit(): void;
  fail(error: CodedError): void;
};

export class ControlledStore implements Store {
  readonly inner: Store;
  #refusal: CodedError | undefined;
  /** Set: appends fail with it when they are made. */
  failAppends: CodedError | undefined;
  /** True: the answers to appends wait in `kept`. */
  keepsAnswers = false;
  readonly kept: KeptAppend[] = [];
  readonly appended: AppendRequest[] = [];
  /** Those who wait for the end of `refusal`. */
  readonly listeners = new Set<() => void>();

  readonly #clock: Clock;

  constructor(inner: Store, clock: Clock) {
    this.inner = inner;
    this.#clock = clock;
  }

  get refusal(): CodedError | undefined {
    return this.#refusal ?? this.inner.refusal;
  }

  refusalOf(): CodedError | undefined {
    return this.refusal;
  }

  set refusal(error: CodedError | undefined) {
    this.#refusal = error;
  }

  get logShards(): readonly ShardNumber[] {
    return this.inner.logShards;
  }

  get stateShards(): readonly MapShard[] {
    return this.inner.stateShards;
  }

  get interest(): InterestFace {
    return this.inner.interest;
  }

  get evidence(): EvidenceFace {
    return this.inner.evidence;
  }

  state(ownerKey: string): MapShard {
    return this.inner.state(ownerKey);
  }

  append(request: AppendRequest, done: AppendDone): void {
    this.appended.push(request);
    const failure = this.failAppends ?? this.#refusal;
    if (failure !== undefined) {
      done(failure, undefined);
      return;
    }
    if (!this.keepsAnswers) {
      this.inner.append(request, done);
      return;
    }
    const timeUs = this.#clock.wallUs() + this.appended.length;
    const outcome: AppendOutcome = { kind: "stored", timeUs };
    this.kept.push({
      request,
      commit: () => done(undefined, outcome),
      fail: (error) => done(error, undefined),
    });
  }

  onceWritable(listener: () => void): Cancel {
    if (this.#refusal === undefined) return this.inner.onceWritable(listener);
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  shardOf(topic: string, publisher: string): ShardNumber {
    return this.inner.shardOf(topic, publisher);
  }

  openWriter(name: string, publisher: string): Promise<number> {
    return this.inner.openWriter(name, publisher);
  }

  writerResult(stamp: WriterStamp, publisher: string): number | undefined {
    return this.inner.writerResult(stamp, publisher);
  }

  closeWriter(name: string, publisher: string): Promise<void> {
    return this.inner.closeWriter(name, publisher);
  }

  /** The store takes writes again. */
  recover(): void {
    this.#refusal = undefined;
    for (const listener of [...this.listeners]) if (this.listeners.delete(listener)) listener();
  }

  tail(): Map<ShardNumber, number> {
    return this.inner.tail();
  }

  get isShared(): boolean {
    return this.inner.isShared;
  }

  barrier(shard: ShardNumber): Promise<void> | undefined {
    return this.inner.barrier(shard);
  }

  subscribe<T>(options: SubscriberOptions<T>): Subscriber<T> {
    return this.inner.subscribe(options);
  }

  fetch(refs: readonly TtvRef[]): Promise<Array<Ttv | undefined>> {
    return this.inner.fetch(refs);
  }

  rotate(): Promise<void> {
    return this.inner.rotate();
  }

  dropUntil(untilUs: number): Promise<void> {
    return this.inner.dropUntil(untilUs);
  }

  checkpoint(): Promise<void> {
    return this.inner.checkpoint();
  }

  start(): Promise<void> {
    return this.inner.start();
  }

  close(): Promise<void> {
    return this.inner.close();
  }
}
