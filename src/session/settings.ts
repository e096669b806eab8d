// Settings and counters of the session room: plain data, every limit with its reason.

import { createCounters } from "../base/index.ts";

/** `hash_*`: by publisher or topic, as long as members stay the same and have room. */
export type SharedStrategy =
  | "round_robin"
  | "least_inflight"
  | "sticky"
  | "hash_client"
  | "hash_topic";

export type SessionSettings = {
  /** Messages at QoS 1 and 2 under way to one client; the client's Receive Maximum lowers it. */
  readonly inflightMax: number;
  /** Bytes under way to one client; one message is admitted whatever its size. */
  readonly inflightBytesMax: number;
  /** Filters of one client: each costs memory while the client is away. */
  readonly subscriptionsMax: number;
  /** Bytes of all filters of one client: one filter alone may have 64 KiB. */
  readonly subscriptionBytesMax: number;
  /** Durable sessions of one user, and of all anonymous clients together; beyond: refused. */
  readonly sessionsPerUserMax: number;
  /** A takeover waits so long for the last write of the old connection. */
  readonly takeoverWaitMs: number;
  /** Messages that wait for an absent client: the newest are kept at its return. */
  readonly backlogMax: number;
  /** Which member of a shared group gets a message. */
  readonly sharedStrategy: SharedStrategy;
  /** How long after a start absent clients' wills and expiries that fell due do not count. */
  readonly restartGraceMs: number;
  /** A changed session is written this long after its change when little else is. */
  readonly checkpointDelayMs: number;
  /** ... and at most this long after it, under load. */
  readonly checkpointDelayMsMax: number;
  /** Keys a second written by checkpoints of one state shard before they begin to spread out. */
  readonly checkpointKeysPerS: number;
  /** First and longest wait before a failed write is tried again. */
  readonly retryDelayMs: number;
  readonly retryDelayMsMax: number;
  /** How far ahead of the tail "may have been sent" lies: one renewal serves that long. */
  readonly sentAheadMs: number;
  /** Retained messages read at a time for one session. */
  readonly retainedPageMax: number;
  /** Pages of retained messages kept for others who ask for the same. */
  readonly retainedCacheBytesMax: number;
  /** Topics remembered as retained anew and sent live while jobs run; others may come once more. */
  readonly liveTopicsMax: number;
  /** Messages waiting for a window slot of an expiry-0 session; at the brim it ends with 0x97. */
  readonly memoryQueueMax: number;
  readonly memoryQueueBytesMax: number;
  /** Sessions ended by timers at the same time. */
  readonly timerJobsMax: number;
};

export const sessionSettingsDefault: SessionSettings = {
  inflightMax: 1000,
  inflightBytesMax: 1024 * 1024,
  subscriptionsMax: 1000,
  // A kilobyte for each of them; filters in use have some dozens.
  subscriptionBytesMax: 1024 * 1024,
  // As many as connections: one user for a whole fleet is usual.
  sessionsPerUserMax: 100_000,
  takeoverWaitMs: 2000,
  backlogMax: Number.POSITIVE_INFINITY,
  sharedStrategy: "round_robin",
  restartGraceMs: 30_000,
  checkpointDelayMs: 50,
  checkpointDelayMsMax: 1000,
  checkpointKeysPerS: 4000,
  retryDelayMs: 100,
  retryDelayMsMax: 5000,
  sentAheadMs: 2000,
  retainedPageMax: 100,
  retainedCacheBytesMax: 16 * 1024 * 1024,
  liveTopicsMax: 10_000,
  memoryQueueMax: 100_000,
  memoryQueueBytesMax: 16 * 1024 * 1024,
  timerJobsMax: 16,
};

export function createSessionCounters() {
  return createCounters({
    sessionsCreated: "durable sessions created",
    sessionsResumed: "durable sessions resumed",
    sessionsTakenOver: "connections ended because their client id connected again",
    takeoversUnanswered: "takeovers that went on without the last write of the old connection",
    claimsUnknown: "claims of sessions whose fate was not known and was looked up",
    claimsLost: "connects that another node was faster with, and began anew",
    peersUnanswered: "nodes that did not say in time which client ids they use",
    sessionsExpired: "durable sessions removed because their expiry passed",
    sessionsRemoved: "durable sessions removed, for whatever reason",
    usersRefused: "connections refused because the client id belongs to another user",
    sessionsOfUserFull: "durable sessions not made because their user has too many",
    delivered: "messages handed to connections",
    resent: "messages sent again after a reconnect",
    expiredDropped: "messages dropped because their expiry had passed",
    tooLargeDropped: "messages above a client's Maximum Packet Size",
    qos0Dropped: "QoS 0 messages dropped at a full connection",
    bodyGone: "in-flight messages whose body had been removed before the resend",
    missed: "messages that retention or damage removed before a session got them",
    backlogDropped: "messages dropped by backlogMax when their client came back",
    groupMessagesDealt: "messages of shared groups given to a member",
    groupMessagesReturned: "messages of shared groups taken back from members that left",
    groupMessagesDropped: "messages of shared groups that nobody was left to take",
    memoryQueueFull: "expiry-0 sessions ended because their queue was full",
    subscriptionsRefused: "subscriptions refused by subscriptionsMax or subscriptionBytesMax",
    liveTopicsFull:
      "topics retained anew that were not remembered as sent live during a retained job",
    retainedShardsSkipped: "state shards whose retained messages a job passed over for damage",
    checkpointWrites: "writes made for session state",
    checkpointKeys: "keys written by checkpoints of sessions",
    writesFailed: "writes of session state that failed and are tried again",
    recordsCorrupt: "stored records that could not be read and were passed over or discarded",
    sessionsFenced: "sessions ended because another owner had claimed them",
    willsPublished: "wills published",
    willsFailed: "wills that could not be published and are tried again",
    willWritersLeft: "writers of published wills that could not be closed",
    willsDropped: "wills that the publish path refused for good",
  });
}

export type SessionCounters = ReturnType<typeof createSessionCounters>;
