// Short ways to use a store in tests.

import type {
  AppendOutcome,
  AppendRequest,
  DeliverableTtv,
  MissedReport,
  Positions,
  Store,
  Subscriber,
  SubscriberPort,
  TtvRef,
} from "../../src/store/index.ts";

export function appendRequest(
  topic: string,
  value: string,
  over: Partial<AppendRequest> = {},
): AppendRequest {
  return {
    topic,
    publisher: "p",
    form: "raw",
    qos: 1,
    retain: false,
    expiryUs: 0,
    expiryOffset: 0,
    frame: Buffer.from(value),
    keep: true,
    evidence: undefined,
    ...over,
  };
}

export function append(store: Store, request: AppendRequest): Promise<AppendOutcome> {
  return new Promise((resolve, reject) => {
    store.append(request, (error, outcome) => {
      if (outcome === undefined) reject(error);
      else resolve(outcome);
    });
  });
}

export type Received = {
  topic: string;
  value: string;
  timeUs: number;
  filters: string[];
  shard: number;
  ref: TtvRef;
};

/** A subscriber with a window that keeps what it got. */
export class Reader implements SubscriberPort<string> {
  readonly received: Received[] = [];
  readonly refs: TtvRef[] = [];
  readonly missedReports: MissedReport[] = [];
  room: number;
  subscriber: Subscriber<string>;
  /** Called when it has taken something. */
  onOffer: () => void = () => undefined;

  constructor(
    store: Store,
    filters: readonly string[],
    positions: Positions,
    options: { room?: number; start?: Positions; starts?: ReadonlyMap<string, Positions> } = {},
  ) {
    this.room = options.room ?? 1_000_000;
    const start = options.start ?? new Map<number, number>();
    const startOf = (filter: string): Positions => options.starts?.get(filter) ?? start;
    this.subscriber = store.subscribe<string>({
      filters: filters.map((filter) => {
        return { filter, start: startOf(filter), durable: true, context: filter };
      }),
      positions,
      port: this,
    });
    this.subscriber.wake();
  }

  offer(ttv: DeliverableTtv, matches: readonly string[]): boolean {
    if (this.room <= 0) return false;
    this.room--;
    const { topic, timeUs } = ttv;
    this.refs.push(ttv.ref);
    const value = ttv.frame.toString();
    this.received.push({
      topic,
      value,
      timeUs,
      filters: [...matches],
      shard: ttv.ref.shard,
      ref: ttv.ref,
    });
    this.onOffer();
    return true;
  }

  moved(): void {
    // Positions are asked for when they are needed.
  }

  missed(report: MissedReport): void {
    this.missedReports.push(report);
  }

  get values(): string[] {
    return this.received.map((each) => each.value);
  }
}
