// Deadlines, connections that ended without notice, and wills left half published, for the state shards
// that this node leads. Another one that leads, or still believes so, does no harm: every step is
// guarded by what was read, and a will goes out under one writer.
//
// A connection counts as ended without notice when its owner, a start of a node, has not been seen here
// for `restartGrace`: its node is not reached, or runs with another start. Clients come back meanwhile,
// to whichever node. Judged by the clock of whoever leads: nobody else needs to agree.

import { type Cancel, toError } from "../../base/index.ts";
import type { MapShard } from "../../store/index.ts";
import type { SessionContext } from "../context.ts";
import { Absence } from "../core/absence.ts";
import type { LiveRecord, Owner } from "../core/records.ts";
import { dueOfKey, duePrefix, firePrefix } from "../keys.ts";
import type { SessionNodes } from "../nodes.ts";
import type { Timeline } from "../timeline.ts";
import type { SessionTimers } from "../timers.ts";
import type { WillFirer } from "../wills.ts";

export type SweepParts = {
  readonly context: SessionContext;
  readonly nodes: SessionNodes;
  readonly timeline: Timeline;
  readonly timers: SessionTimers;
  readonly wills: WillFirer;
};

type Led = { duesMs: number[]; isBusy: boolean };

const lookMs = 1_000;
/** Looks that are planned; one covers all that has come until then. */
const duesMax = 64;
/** Marks of wills looked at a time: there are few at any moment. */
const marksMax = 256;

export class Sweeps {
  readonly #parts: SweepParts;
  readonly #absence: Absence;
  /** By state shards that this node leads: when to look for connections that have ended. */
  readonly #led = new Map<MapShard, Led>();
  #cancel: Cancel | undefined;
  #isStopped = false;

  constructor(parts: SweepParts) {
    this.#parts = parts;
    this.#absence = new Absence(parts.context.clock.elapsedMs());
  }

  start(): void {
    this.#look();
  }

  stop(): void {
    this.#isStopped = true;
    this.#cancel?.();
  }

  /** A row of `live/` names this owner. */
  owned(shard: MapShard, owner: Owner | undefined): void {
    // Of somebody who is not seen from here: nothing else would bring it to mind.
    const led = this.#led.get(shard);
    if (led === undefined || this.#absence.sinceMs(owner) === undefined) return;
    if (led.duesMs.length < duesMax) led.duesMs.push(this.#nowMs + this.#graceMs);
  }

  get #nowMs(): number {
    return this.#parts.context.clock.elapsedMs();
  }

  get #graceMs(): number {
    return this.#parts.context.settings.restartGraceMs;
  }

  #look(): void {
    const { context, nodes } = this.#parts;
    const nowMs = this.#nowMs;
    const gone = this.#absence.look(this.#present(), nowMs);
    for (const shard of context.store.stateShards) {
      if (!nodes.leads(shard.number)) {
        this.#led.delete(shard);
        continue;
      }
      // Whoever led before may have left anything.
      const led = this.#led.get(shard) ?? { duesMs: [nowMs, ...this.#duesMs()], isBusy: false };
      this.#led.set(shard, led);
      if (gone > 0) led.duesMs.push(nowMs + this.#graceMs);
      if (!led.isBusy) void this.#sweep(shard, led, nowMs);
    }
    this.#cancel = context.clock.schedule(lookMs, () => this.#look());
  }

  /** When those that are away count as gone. */
  #duesMs(): number[] {
    const dues = [...this.#absence.sinces()].map((sinceMs) => sinceMs + this.#graceMs);
    return dues.filter((dueMs) => dueMs > this.#nowMs);
  }

  #present(): Owner[] {
    const { nodes } = this.#parts;
    const others = nodes.peers().flatMap((node) => {
      const start = nodes.startOf(node);
      return start === undefined ? [] : [{ node, start }];
    });
    return [{ node: nodes.node, start: nodes.start }, ...others];
  }

  /** Never rejects. */
  async #sweep(shard: MapShard, led: Led, nowMs: number): Promise<void> {
    const { timers, timeline, context } = this.#parts;
    const open = led.duesMs.filter((dueMs) => dueMs > nowMs);
    const isDue = open.length < led.duesMs.length;
    led.duesMs = open;
    led.isBusy = true;
    try {
      const [first] = await shard.list(duePrefix, { countMax: 1 });
      if (first !== undefined && dueOfKey(first.key) <= timeline.nowUs()) timers.sweep(shard);
      await this.#adoptWills(shard);
      if (isDue && !this.#isStopped)
        await timers.settleLost(shard, (record) => this.#lostUs(record));
    } catch (error) {
      if (!this.#isStopped) {
        context.logger.warn("session.timers_failed", { error: toError(error).message });
      }
      led.duesMs.push(nowMs + context.settings.retryDelayMsMax);
    } finally {
      led.isBusy = false;
    }
  }

  async #adoptWills(shard: MapShard): Promise<void> {
    const { wills, context } = this.#parts;
    const marks = await shard.list(firePrefix, { countMax: marksMax });
    const leftUs = context.clock.wallUs() - this.#graceMs * 1000;
    const left = marks.filter(({ timeUs }) => timeUs < leftUs);
    if (left.length > 0 && !this.#isStopped) await wills.adopt(left);
  }

  #lostUs({ owner }: LiveRecord): number | undefined {
    const sinceMs = this.#absence.sinceMs(owner);
    if (sinceMs === undefined) return undefined;
    const goneMs = this.#nowMs - sinceMs;
    if (goneMs < this.#graceMs) return undefined;
    return this.#parts.timeline.nowUs() - Math.round(goneMs * 1000);
  }
}
