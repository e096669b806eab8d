// Timers of wills and session expiries. They live in the store, sorted by time under `due/`, and
// cost no memory: one real timer per state shard waits for the first of them.
//
// Connected sessions have no deadline but a key under `live/`. One that is left by an earlier
// process is a connection that ended without notice; when the grace after the start is over, its
// client counts as absent since the start (or since the stop that was recorded).
//
// Where several nodes share the store, whoever leads a state shard does this for it, and says which
// connections ended without notice (across/sweeps.ts).

import { type Cancel, isCodedError } from "../base/index.ts";
import type { MapEntry, MapShard } from "../store/index.ts";
import type { Closing } from "./closing.ts";
import type { SessionContext } from "./context.ts";
import { decodeDue, decodeLive, type LiveRecord, neverUs } from "./core/records.ts";
import { dueOfKey, duePrefix, livePrefix, numberLevel } from "./keys.ts";
import { Lanes } from "./lanes.ts";
import { deleteKey, eachEntry, readStoredSession } from "./stored-session.ts";
import type { Timeline } from "./timeline.ts";
import type { Turnstile } from "./turnstile.ts";
import type { WillFirer } from "./wills.ts";

export type TimerOptions = {
  readonly context: SessionContext;
  readonly timeline: Timeline;
  readonly turnstile: Turnstile;
  readonly closing: Closing;
  readonly wills: WillFirer;
  readonly isConnected: (clientId: string) => boolean;
};

/** Since when the connection of such a record has been gone; undefined: it has not, or not for long. */
export type LostSince = (record: LiveRecord) => number | undefined;

type Armed = { cancel: Cancel | undefined; dueUs: number; sweeping: boolean; again: boolean };

/** A real timer waits at most this long, so that what it computes stays exact. */
const timerMsMax = 2 ** 31 - 1;
/** Deadlines read at a time. */
const duePageMax = 256;

export class SessionTimers {
  readonly #options: TimerOptions;
  readonly #armed = new Map<MapShard, Armed>();
  #graceTimer: Cancel | undefined;
  #started = false;
  #stopped = false;

  constructor(options: TimerOptions) {
    this.#options = options;
    for (const shard of options.context.store.stateShards) {
      this.#armed.set(shard, {
        cancel: undefined,
        dueUs: Number.POSITIVE_INFINITY,
        sweeping: false,
        again: false,
      });
    }
  }

  start(): void {
    this.#started = true;
    const { context, timeline } = this.#options;
    if (context.owner !== undefined) return;
    const waitMs = Math.max(0, Math.ceil((timeline.graceEndUs - timeline.nowUs()) / 1000));
    this.#graceTimer = context.clock.schedule(waitMs, () => this.#endGrace());
    for (const shard of context.store.stateShards) this.sweep(shard);
  }

  /** A deadline was stored. */
  arm(clientId: string, dueUs: number): void {
    const { context } = this.#options;
    // Elsewhere whoever leads looks for it himself.
    if (context.owner === undefined) this.#armUnlessNever(context.store.state(clientId), dueUs);
  }

  stop(): void {
    this.#stopped = true;
    this.#graceTimer?.();
    for (const armed of this.#armed.values()) armed.cancel?.();
  }

  #armUnlessNever(shard: MapShard, dueUs: number): void {
    if (dueUs < neverUs) this.#armAt(shard, dueUs);
  }

  #armAt(shard: MapShard, dueUs: number): void {
    const { context, timeline } = this.#options;
    const armed = this.#armed.get(shard) as Armed;
    if (!this.#started || this.#stopped || dueUs >= armed.dueUs) return;
    armed.cancel?.();
    armed.dueUs = dueUs;
    // Rounded up: a timer that comes early would find nothing due and be armed for no time at all.
    const delayMs = Math.max(0, Math.ceil((dueUs - timeline.nowUs()) / 1000));
    armed.cancel = context.clock.schedule(Math.min(delayMs, timerMsMax), () => {
      armed.cancel = undefined;
      armed.dueUs = Number.POSITIVE_INFINITY;
      this.sweep(shard);
    });
  }

  /** Does what is due, and waits for what is due next. */
  sweep(shard: MapShard): void {
    const armed = this.#armed.get(shard) as Armed;
    if (this.#stopped) return;
    armed.again = true;
    if (armed.sweeping) return;
    armed.sweeping = true;
    this.#sweepAll(shard, armed).catch((error: unknown) => {
      const { context, timeline } = this.#options;
      armed.sweeping = false;
      context.logger.warn("session.timers_failed", { error });
      this.#armAt(shard, timeline.nowUs() + context.settings.retryDelayMsMax * 1000);
    });
  }

  async #sweepAll(shard: MapShard, armed: Armed): Promise<void> {
    while (armed.again && !this.#stopped) {
      armed.again = false;
      await this.#sweepOnce(shard);
    }
    armed.sweeping = false;
  }

  /** Page by page over what is due: one that fails or takes long keeps no other from its turn. */
  async #sweepOnce(shard: MapShard): Promise<void> {
    const { settings } = this.#options.context;
    const nowUs = this.#options.timeline.nowUs();
    const lanes = new Lanes(settings.timerJobsMax);
    let failed = false;
    let from = this.#listFrom();
    for (;;) {
      const page = await shard.list(duePrefix, { ...from, countMax: duePageMax });
      for (const entry of page) {
        if (this.#stopped) return;
        const dueUs = dueOfKey(entry.key);
        if (dueUs > nowUs) {
          this.#armUnlessNever(shard, dueUs);
          break;
        }
        await lanes.run(async () => {
          if (!(await this.#settle(shard, entry))) failed = true;
        });
      }
      const last = page.at(-1);
      if (last === undefined || page.length < duePageMax || dueOfKey(last.key) > nowUs) break;
      from = { afterKey: last.key };
    }
    await lanes.idle();
    if (failed) this.#armAt(shard, nowUs + settings.retryDelayMsMax * 1000);
  }

  /** During the grace what fell due before the start is passed over. */
  #listFrom(): { afterKey?: string } {
    const { timeline } = this.#options;
    if (timeline.nowUs() >= timeline.graceEndUs) return {};
    return { afterKey: `${duePrefix}${numberLevel(timeline.startedUs + 1)}` };
  }

  async #settle(shard: MapShard, entry: MapEntry): Promise<boolean> {
    const { turnstile, context } = this.#options;
    try {
      const { clientId } = decodeDue(entry.value);
      await turnstile.run(clientId, () => this.#settleClient(shard, clientId, entry));
      return true;
    } catch (error) {
      // Somebody else was faster: its client with another node, or whoever leads the shard now.
      if (isCodedError(error, "STORE_GUARD_FAILED")) return true;
      context.logger.warn("session.timer_failed", { key: entry.key, error });
      if (!isCodedError(error) || error.kind !== "corrupt") return false;
      // What cannot be read would be met for ever: the deadline goes, the session waits for its
      // client.
      context.counters.recordsCorrupt++;
      return this.#drop(shard, entry.key);
    }
  }

  async #drop(shard: MapShard, key: string): Promise<boolean> {
    try {
      const { writer } = this.#options.context.checkpointer(shard);
      await writer.write(() => ({ writes: [deleteKey(key)], guards: [] }));
      return true;
    } catch {
      // Tried again with the next sweep, like the deadline itself.
      return false;
    }
  }

  async #settleClient(shard: MapShard, clientId: string, { key, timeUs }: MapEntry): Promise<void> {
    if (this.#stopped) return;
    const { closing, context, isConnected } = this.#options;
    const stored = isConnected(clientId) ? undefined : await readStoredSession(shard, clientId);
    const current = stored?.closed !== undefined && stored.keys.due(stored.closed.dueUs) === key;
    if (stored !== undefined && current) {
      await closing.settle(stored);
      return;
    }
    // Nobody's deadline any more: the client is back, or the session is gone.
    const { writer } = context.checkpointer(shard);
    const guards = [{ key, timeUs }];
    await writer.write(() => ({ writes: [deleteKey(key)], guards }));
  }

  #endGrace(): void {
    if (this.#stopped) return;
    const { context, wills } = this.#options;
    for (const shard of context.store.stateShards) this.sweep(shard);
    Promise.all([wills.firePending(), this.#settleLeft()]).catch((error: unknown) => {
      context.logger.warn("session.grace_failed", { error });
      if (this.#stopped) return;
      const retryMs = context.settings.retryDelayMsMax;
      this.#graceTimer = context.clock.schedule(retryMs, () => this.#endGrace());
    });
  }

  /** Connections of an earlier process whose clients have not come back. */
  async #settleLeft(): Promise<void> {
    const { context, timeline } = this.#options;
    const { startedUs } = timeline;
    for (const shard of context.store.stateShards) {
      await this.settleLost(shard, ({ bootUs }) => (bootUs === startedUs ? undefined : startedUs));
    }
  }

  /** Closes the sessions whose connections are gone. Rejects when one could not be closed. */
  async settleLost(shard: MapShard, lostSince: LostSince): Promise<void> {
    const lanes = new Lanes(this.#options.context.settings.timerJobsMax);
    let failure: unknown;
    await eachEntry(shard, livePrefix, async (entry) => {
      const record = this.#readLive(entry);
      const lostUs = record === undefined || this.#stopped ? undefined : lostSince(record);
      if (record === undefined || lostUs === undefined) return;
      await lanes.run(() =>
        this.#settleLive(shard, record, lostUs).catch((error: unknown) => {
          failure = error;
        }),
      );
    });
    await lanes.idle();
    if (failure !== undefined) throw failure;
  }

  #readLive(entry: { key: string; value: Buffer }): LiveRecord | undefined {
    try {
      return decodeLive(entry.value);
    } catch (error) {
      const { counters, logger } = this.#options.context;
      counters.recordsCorrupt++;
      logger.error("session.record_corrupt", { key: entry.key, error });
      return undefined;
    }
  }

  /** One session that cannot be settled holds up no other: its client may still come back. */
  async #settleLive(shard: MapShard, record: LiveRecord, lostUs: number): Promise<void> {
    const { clientId } = record;
    try {
      await this.#settleLiveNow(shard, record, lostUs);
    } catch (error) {
      // Its client came back, to another node.
      if (isCodedError(error, "STORE_GUARD_FAILED")) return;
      if (!isCodedError(error) || error.kind !== "corrupt") throw error;
      this.#options.context.counters.recordsCorrupt++;
      this.#options.context.logger.error("session.record_corrupt", { clientId, error });
    }
  }

  #settleLiveNow(shard: MapShard, { clientId, owner }: LiveRecord, lostUs: number): Promise<void> {
    const { turnstile, closing, isConnected } = this.#options;
    return turnstile.run(clientId, async () => {
      if (this.#stopped || isConnected(clientId)) return;
      const stored = await readStoredSession(shard, clientId);
      if (stored === undefined) return;
      // Closed since: it has its deadline.
      if (stored.closed !== undefined && stored.closed.dueUs !== 0) return;
      // Claimed since.
      if (stored.claim.owner?.start !== owner?.start) return;
      await closing.settle(stored, lostUs);
    });
  }
}
