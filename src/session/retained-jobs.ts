// The retained messages owed to one session after its SUBSCRIBEs: a job per filter, read page by
// page and sent one by one when the session gives it a slot. All matches are delivered, paced by
// the window and the connection.
//
// For a durable session a job is state: its position is checkpointed with the in-flight records,
// and a page is sent only once "may have been sent up to its last topic" is durable, so that after
// an end without notice the right ones carry DUP. What was put after the SUBSCRIBE comes as a live
// message and is skipped here, as is what a newer retained message of its topic was sent live in
// place of. A live message without RETAIN replaces nothing
// (docs/decisions/024-retained-beside-live.md).

import { type CodedError, isCodedError, type Logger } from "../base/index.ts";
import type { Positions, Ttv, TtvRef } from "../store/index.ts";
import type { Subscription } from "./api.ts";
import { isExpired } from "./core/choose.ts";
import { type JobRecord, neverUs } from "./core/records.ts";
import type { RetainedEntry, RetainedStore } from "./retained.ts";
import type { SessionCounters } from "./settings.ts";

/** Retained messages held in memory for one session, about; one is read whatever its size. */
const pageBytesMax = 1024 * 1024;
/** The first page is small: nothing is known of the sizes yet. */
const firstPageCount = 10;

/** The session, as its jobs see it. */
export interface JobHost {
  subscription(filter: string): Subscription | undefined;
  sendRetained(message: Ttv, subscription: Subscription, inDoubt: boolean): "taken" | "wait";
  /** A page has become ready to be sent. */
  ready(): void;
  /** Records of jobs have changed. `urgent`: sending waits for them. */
  changed(urgent: boolean): void;
}

export type JobOptions = {
  readonly retained: RetainedStore;
  readonly host: JobHost;
  readonly logger: Logger;
  readonly counters: SessionCounters;
  readonly pageMax: number;
  readonly liveTopicsMax: number;
  readonly durable: boolean;
  readonly nowUs: () => number;
  /** Runs `task` later, to read again after a failure. */
  readonly retry: (task: () => void) => void;
};

type Job = {
  readonly filter: string;
  /** Empty until the subscription is durable: nothing counts as newer. */
  start: Positions;
  active: boolean;
  after: string | undefined;
  /** Up to this topic messages may have been sent by an owner that ended without notice. */
  inheritedDoubt: string | undefined;
  /** Last topic of the page being sent: the doubt this owner would leave. */
  pageTopic: string | undefined;
  page: RetainedEntry[];
  /** The doubt of this page is durable, or need not be. */
  pageBound: boolean;
  /** Position after the page; undefined = the end. */
  next: string | undefined;
  /** Entries to read at a time, by the size of those read before. */
  pageCount: number;
  /** Damage lies ahead: entries are read one at a time up to it. */
  isCareful: boolean;
  /** Where the shards of messages stood at the SUBSCRIBE; empty for a job of an earlier connection. */
  tail: Positions;
  /** Topics of which a message with RETAIN was sent live, and how it stands to the retained one. */
  readonly sentLive: Map<string, "newer" | "unknown">;
  state: "start" | "reading" | "sending" | "done";
};

export type LivePlace = Pick<TtvRef, "shard" | "timeUs"> & {
  /** What brought it brings the newer ones of its topic too, where they are stored. */
  readonly bringsNext: boolean;
};

export type CollectedJobs = ReadonlyArray<{
  readonly filter: string;
  /** Undefined: the job is over. */
  readonly record: JobRecord | undefined;
  readonly pageTopic: string | undefined;
}>;

export class RetainedJobs {
  readonly #options: JobOptions;
  readonly #jobs = new Map<string, Job>();
  #dirty = new Set<string>();
  /** Messages that are in flight already although the job's position lies before them. */
  readonly #recovered = new Set<string>();
  #stopped = false;

  constructor(options: JobOptions) {
    this.#options = options;
  }

  get running(): boolean {
    return this.#jobs.size > 0;
  }

  get hasChanges(): boolean {
    return this.#dirty.size > 0;
  }

  /** A message is at hand that may be sent. */
  get ready(): boolean {
    const job = this.#current();
    return job?.pageBound === true && job.page.length > 0;
  }

  /** A SUBSCRIBE asks for the retained messages of a filter, from the beginning. */
  create(filter: string): JobRecord {
    const job = newJob(filter, new Map());
    this.#jobs.delete(filter);
    this.#jobs.set(filter, job);
    return recordOf(job);
  }

  /** The subscription is durable: what is put after `start` surely comes live. */
  subscribed(filter: string, start: Positions, tail: Positions): void {
    const job = this.#jobs.get(filter);
    if (job === undefined || job.start.size > 0) return;
    job.start = start;
    job.tail = tail;
    this.#changedLazily(filter);
  }

  /** The SUBACK is out: sending may begin. */
  activate(filter: string): void {
    const job = this.#jobs.get(filter);
    if (job === undefined || job.active) return;
    job.active = true;
    this.advance();
  }

  /** A job that an earlier connection left. Active at once: its SUBACK is long out. */
  restore(record: JobRecord): void {
    const job = newJob(record.filter, record.start);
    job.active = true;
    job.after = record.after;
    job.inheritedDoubt = record.doubtTopic;
    this.#jobs.set(record.filter, job);
  }

  restoreInFlight(message: Ttv): void {
    if (this.#jobs.size > 0) this.#recovered.add(`${message.timeUs}:${message.topic}`);
  }

  /** The filter was unsubscribed: what is unsent is dropped. */
  remove(filter: string): boolean {
    const existed = this.#jobs.delete(filter);
    // What the cursor would have brought for this filter it does not bring any more.
    for (const { sentLive } of this.#jobs.values()) {
      for (const [topic, how] of sentLive) if (how === "unknown") sentLive.delete(topic);
    }
    this.advance();
    return existed;
  }

  has(filter: string): boolean {
    return this.#jobs.has(filter);
  }

  /** No job: nobody asks what has gone out live. */
  get isIdle(): boolean {
    return this.#jobs.size === 0;
  }

  /**
   * A message was sent live. If RETAIN was set, what was retained before it is out of date. `place`:
   * where it is stored; one from before the SUBSCRIBE may itself be the older one.
   */
  noteLive({ topic, retain }: Pick<Ttv, "topic" | "retain">, place?: LivePlace): void {
    if (!retain) return;
    const { liveTopicsMax, counters } = this.#options;
    let room = liveTopicsMax;
    for (const { sentLive } of this.#jobs.values()) room -= sentLive.size;
    for (const { tail, sentLive } of this.#jobs.values()) {
      const isKnown = sentLive.has(topic);
      const isNewer = place === undefined || place.timeUs > (tail.get(place.shard) ?? neverUs);
      if (!isNewer && (isKnown || !place.bringsNext)) continue;
      if (!isKnown && room-- <= 0) counters.liveTopicsFull++;
      else sentLive.set(topic, isNewer ? "newer" : "unknown");
    }
  }

  /** Sends at most one message. False: nothing could be sent now. */
  sendOne(): boolean {
    for (;;) {
      const job = this.#current();
      if (job === undefined || !job.pageBound) return false;
      const entry = job.page[0];
      if (entry === undefined) return false;
      const subscription = this.#options.host.subscription(job.filter);
      const wanted = subscription !== undefined && !this.#isSkipped(job, entry, subscription);
      if (wanted) {
        const inDoubt = job.inheritedDoubt !== undefined;
        const host = this.#options.host;
        if (host.sendRetained(entry.message, subscription, inDoubt) === "wait") return false;
      }
      this.#passed(job, entry);
      if (wanted) return true;
    }
  }

  /** Reads the next page of the job whose turn it is. */
  advance(): void {
    const job = this.#current();
    if (this.#stopped || job === undefined || job.state === "reading") return;
    if (job.page.length > 0) return;
    job.state = "reading";
    const { retained, pageMax } = this.#options;
    const countMax = job.isCareful ? 1 : Math.min(pageMax, job.pageCount);
    retained.readPage(job.filter, job.after, countMax).then(
      (page) => {
        if (this.#stopped || this.#jobs.get(job.filter) !== job) return;
        job.page = [...page.entries];
        job.next = page.next;
        job.pageCount = pageCountAfter(job.page, job.pageCount);
        this.#pageRead(job);
      },
      (error: unknown) => this.#readFailed(job, error),
    );
  }

  #readFailed(job: Job, error: unknown): void {
    const { filter, after } = job;
    if (isCodedError(error) && error.kind === "corrupt") {
      this.#passDamage(job, error);
      return;
    }
    this.#options.logger.warn("session.retained_read_failed", { filter, error });
    this.#options.retry(() => {
      if (this.#jobs.get(filter) !== job) return;
      job.state = "start";
      job.after = after;
      this.advance();
    });
  }

  /**
   * Damage does not heal: what stands before it in key order is read one by one, the rest of its
   * state shard is given up, and the others go on.
   */
  #passDamage(job: Job, error: CodedError): void {
    if (this.#stopped || this.#jobs.get(job.filter) !== job) return;
    job.state = "start";
    if (!job.isCareful) {
      job.isCareful = true;
      this.advance();
      return;
    }
    const { retained, counters, logger } = this.#options;
    const { filter, after } = job;
    counters.retainedShardsSkipped++;
    logger.error("session.retained_skipped", { filter, after, error });
    job.next = retained.positionPastShard(filter, after);
    job.isCareful = false;
    this.#pageDone(job);
  }

  collect(): CollectedJobs {
    const collected = [...this.#dirty].map((filter) => {
      const job = this.#jobs.get(filter);
      const record = job === undefined ? undefined : recordOf(job);
      return { filter, record, pageTopic: job?.pageTopic };
    });
    this.#dirty = new Set();
    return collected;
  }

  committed(collected: CollectedJobs): void {
    for (const { filter, pageTopic } of collected) {
      const job = this.#jobs.get(filter);
      if (job === undefined || job.pageBound || job.pageTopic !== pageTopic) continue;
      job.pageBound = true;
      this.#options.host.ready();
    }
  }

  failed(collected: CollectedJobs): void {
    for (const { filter } of collected) this.#dirty.add(filter);
  }

  /** The exact state of every unfinished job, for an orderly end. */
  exact(): JobRecord[] {
    return [...this.#jobs.values()].map((job) => ({
      ...recordOf(job),
      doubtTopic: job.inheritedDoubt,
    }));
  }

  stop(): void {
    this.#stopped = true;
  }

  #current(): Job | undefined {
    for (const job of this.#jobs.values()) if (job.active) return job;
    return undefined;
  }

  #pageRead(job: Job): void {
    if (job.page.length === 0) {
      this.#pageDone(job);
      return;
    }
    job.state = "sending";
    job.pageTopic = job.page.at(-1)?.message.topic;
    const granted = this.#options.host.subscription(job.filter)?.qos ?? 0;
    const acked = granted > 0 && job.page.some((entry) => entry.message.qos > 0);
    job.pageBound = !(this.#options.durable && acked);
    if (job.pageBound) {
      this.#options.host.ready();
      return;
    }
    this.#dirty.add(job.filter);
    this.#options.host.changed(true);
  }

  #passed(job: Job, entry: RetainedEntry): void {
    job.page.shift();
    job.after = entry.position;
    if (job.inheritedDoubt === entry.message.topic) job.inheritedDoubt = undefined;
    this.#changedLazily(job.filter);
    if (job.page.length === 0) this.#pageDone(job);
  }

  #pageDone(job: Job): void {
    job.after = job.next ?? job.after;
    job.pageTopic = undefined;
    job.pageBound = false;
    job.state = "start";
    if (job.next === undefined) {
      job.state = "done";
      this.#jobs.delete(job.filter);
      this.#changedLazily(job.filter);
    }
    this.advance();
  }

  #changedLazily(filter: string): void {
    if (!this.#options.durable) return;
    this.#dirty.add(filter);
    this.#options.host.changed(false);
  }

  #isSkipped(job: Job, entry: RetainedEntry, subscription: Subscription): boolean {
    const { message, shard } = entry;
    if (isExpired(message, this.#options.nowUs())) return true;
    if (this.#recovered.delete(`${message.timeUs}:${message.topic}`)) return true;
    const sentLive = job.sentLive.get(message.topic);
    if (sentLive === "newer") return true;
    // The cursor brings, surely, what was put after the SUBSCRIBE and is stored, and what was put and
    // stored after a message that the cursor brought.
    const isNewer = message.timeUs > (job.start.get(shard) ?? neverUs);
    const isStored = this.#options.durable && message.qos > 0 && subscription.qos > 0;
    return isStored && (isNewer || sentLive === "unknown");
  }
}

/** How many entries of the size seen make a page. */
function pageCountAfter(page: readonly RetainedEntry[], before: number): number {
  if (page.length === 0) return before;
  let bytes = 0;
  for (const { message } of page) bytes += message.frame.length;
  return Math.max(1, Math.floor((pageBytesMax * page.length) / Math.max(1, bytes)));
}

function newJob(filter: string, start: Positions): Job {
  return {
    filter,
    start,
    active: false,
    after: undefined,
    inheritedDoubt: undefined,
    pageTopic: undefined,
    page: [],
    pageBound: false,
    next: undefined,
    pageCount: firstPageCount,
    isCareful: false,
    tail: new Map(),
    sentLive: new Map(),
    state: "start",
  };
}

function recordOf(job: Job): JobRecord {
  const doubtTopic = job.pageTopic ?? job.inheritedDoubt;
  return { filter: job.filter, after: job.after, doubtTopic, start: job.start };
}
