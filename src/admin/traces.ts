// Traces: for some minutes everything that one client does, or that happens to topics of a filter, is
// written to the log and kept to be read. Lines hold no payloads and no secrets (`broker/tap.ts`).
//
// Bounded: traces remembered, lines kept of each (the oldest go), the length of what a line says, and
// lines a second in the log; what was left out is counted. A trace ends with its node.

import type { Clock, Logger, Random } from "../base/index.ts";
import type { TapEvent } from "../broker/index.ts";
import { matches, parseTopicFilter, splitTopic } from "../topic/index.ts";
import type { Trace, TraceLine } from "./contract.ts";
import { adminErrors } from "./errors.ts";
import type { TapPort } from "./ports.ts";

export type TraceSpec = {
  /** Exactly one of both. */
  readonly clientId?: string;
  readonly filter?: string;
  readonly minutes: number;
};

export type TraceComponents = {
  readonly clock: Clock;
  readonly random: Random;
  readonly logger: Logger;
};

const tracesMax = 16;
const linesKept = 500;
const textShown = 200;
const logLinesPerSMax = 200;

type Live = {
  readonly id: string;
  readonly spec: TraceSpec;
  readonly wants: (event: TapEvent) => boolean;
  readonly startedMs: number;
  readonly endsMs: number;
  /** The newest ones; numbers go on. */
  readonly lines: TraceLine[];
  count: number;
  unlogged: number;
  /** Undefined once it has ended. */
  end: (() => void) | undefined;
};

export class Traces {
  readonly #components: TraceComponents;
  readonly #traces = new Map<string, Live>();
  #second = { startMs: 0, lines: 0 };

  constructor(components: TraceComponents) {
    this.#components = components;
  }

  /** Oldest first. */
  list(): Trace[] {
    return [...this.#traces.values()].map(viewOf);
  }

  /** @throws ADMIN_BUSY, TOPIC_FILTER_INVALID. */
  start(tap: TapPort, spec: TraceSpec): Trace {
    this.#makeRoom();
    const { clock, random } = this.#components;
    const nowMs = Math.floor(clock.wallUs() / 1000);
    const live: Live = {
      id: random.bytes(4).toString("hex"),
      spec,
      wants: wantsOf(spec),
      startedMs: nowMs,
      endsMs: nowMs + spec.minutes * 60_000,
      lines: [],
      count: 0,
      unlogged: 0,
      end: undefined,
    };
    const silence = tap.listen((event) => this.#take(live, event));
    const cancel = clock.schedule(spec.minutes * 60_000, () => live.end?.());
    live.end = () => {
      silence();
      cancel();
      live.end = undefined;
      this.#components.logger.info("trace.ended", { trace: live.id, lines: live.count });
    };
    this.#traces.set(live.id, live);
    return viewOf(live);
  }

  /** @throws ADMIN_THING_NOT_FOUND. */
  stop(id: string): Trace {
    const live = this.#find(id);
    live.end?.();
    return viewOf(live);
  }

  /** Lines behind number `after`, in order. @throws ADMIN_THING_NOT_FOUND. */
  lines(id: string, after: number, countMax: number): { lines: TraceLine[]; hasMore: boolean } {
    const { lines } = this.#find(id);
    const from = lines.findIndex(({ number }) => number > after);
    if (from < 0) return { lines: [], hasMore: false };
    const page = lines.slice(from, from + countMax);
    return { lines: page, hasMore: from + page.length < lines.length };
  }

  close(): void {
    for (const live of this.#traces.values()) live.end?.();
  }

  #find(id: string): Live {
    const live = this.#traces.get(id);
    if (live === undefined) throw adminErrors.thingMissing({ thing: "trace", name: id });
    return live;
  }

  /** Ended ones go, the oldest first. */
  #makeRoom(): void {
    if (this.#traces.size < tracesMax) return;
    for (const [id, { end }] of this.#traces) {
      if (end !== undefined) continue;
      this.#traces.delete(id);
      return;
    }
    throw adminErrors.busy({ what: "traces", max: tracesMax });
  }

  #take(live: Live, event: TapEvent): void {
    if (!live.wants(event)) return;
    const { clock, logger } = this.#components;
    const line = lineOf(event, ++live.count, clock.wallUs());
    live.lines.push(line);
    if (live.lines.length > linesKept) live.lines.shift();
    if (this.#mayLog()) {
      const { number: _number, timeUs: _timeUs, event: name, facts, ...names } = line;
      logger.info(`trace.${name}`, { trace: live.id, ...names, ...facts });
    } else live.unlogged++;
  }

  #mayLog(): boolean {
    const nowMs = this.#components.clock.elapsedMs();
    if (nowMs - this.#second.startMs >= 1000) this.#second = { startMs: nowMs, lines: 0 };
    return ++this.#second.lines <= logLinesPerSMax;
  }
}

function wantsOf({ clientId, filter }: TraceSpec): (event: TapEvent) => boolean {
  if (filter === undefined) return (event) => event.clientId === clientId;
  const parsed = parseTopicFilter(filter);
  return ({ topic }) => topic !== undefined && matches(parsed, splitTopic(topic));
}

function lineOf({ event, clientId, topic, facts }: TapEvent, number: number, timeUs: number) {
  const shown = Object.entries(facts).map(([key, value]) => [key, clipped(value)]);
  return {
    ...{ number, timeUs, event, clientId: clip(clientId) },
    ...(topic === undefined ? {} : { topic: clip(topic) }),
    facts: Object.fromEntries(shown) as TraceLine["facts"],
  };
}

function clipped(value: TapEvent["facts"][string]): TraceLine["facts"][string] {
  if (typeof value === "string") return clip(value);
  return typeof value === "object" ? value.map(clip) : value;
}

function clip(text: string): string {
  return text.length <= textShown ? text : `${text.slice(0, textShown)}...`;
}

function viewOf({ id, spec, startedMs, endsMs, count, lines, unlogged, end }: Live): Trace {
  return {
    id,
    ...(spec.clientId === undefined ? {} : { clientId: spec.clientId }),
    ...(spec.filter === undefined ? {} : { filter: spec.filter }),
    state: end === undefined ? "ended" : "running",
    ...{ startedMs, endsMs, lines: count, linesGone: count - lines.length, unlogged },
  };
}
