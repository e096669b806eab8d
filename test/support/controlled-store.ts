// The fake store with hands on it: it refuses appends, fails them, or keeps their completion back
// until the test lets them go, in any order. Everything else is the fake store's.

import type { CodedError } from "../../src/base/index.ts";
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
} from "../../src/store/index.ts";
import type { FakeStore } from "./fake-store.ts";

export type KeptAppend = {
  readonly request: AppendRequest;
  /** Durable now: the store hands it on and tells the caller. */
  commit(): void;
  fail(error: CodedError): void;
};

export class ControlledStore implements Store {
  readonly inner: FakeStore;
  refusal: CodedError | undefined;
  /** Set: appends fail with it when they are made. */
  failAppends: CodedError | undefined;
  /** True: the answers to appends wait in `kept`. */
  keepsAnswers = false;
  readonly kept: KeptAppend[] = [];
  readonly appended: AppendRequest[] = [];
  #listeners: Array<() => void> = [];

  constructor(inner: FakeStore) {
    this.inner = inner;
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
    const failure = this.failAppends ?? this.refusal;
    if (failure !== undefined) {
      done(failure, undefined);
      return;
    }
    if (!this.keepsAnswers) {
      this.inner.append(request, done);
      return;
    }
    const timeUs = this.inner.clock.wallUs() + this.appended.length;
    const outcome: AppendOutcome = { kind: "stored", timeUs };
    this.kept.push({
      request,
      commit: () => done(undefined, outcome),
      fail: (error) => done(error, undefined),
    });
  }

  onceWritable(listener: () => void): void {
    if (this.refusal === undefined) listener();
    else this.#listeners.push(listener);
  }

  /** The store takes writes again. */
  recover(): void {
    this.refusal = undefined;
    for (const listener of this.#listeners.splice(0)) listener();
  }

  tail(): Map<ShardNumber, number> {
    return this.inner.tail();
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
