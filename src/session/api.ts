// What the session room gives to the broker, and the ports it needs from it.
//
// A session is attached to at most one link (a connection) at a time. Two kinds share one face:
// in-memory sessions (expiry 0: state ends with the connection, direct fan-out) and durable ones
// (cursor, in-flight records and subscriptions in the store). The broker does not care which.

import type { CodedError } from "../base/index.ts";
import type { Positions, PublisherClaim, Ttv, TtvRun, WriterStamp } from "../store/index.ts";

export type Qos = 0 | 1 | 2;

// ---------------------------------------------------------------- ports the broker implements

export type Delivery = {
  readonly qos: Qos;
  readonly dup: boolean;
  readonly retain: boolean;
  /** 0 for QoS 0. */
  readonly packetId: number;
  readonly subscriptionIds: readonly number[];
};

/**
 * Messages of one topic and publisher, none of them retained or with properties, in the order they
 * came. Only valid during the call that hands it out.
 */
export interface MessageRun {
  readonly kind: "live";
  readonly topic: string;
  readonly publisher: string;
  readonly qos: 0 | 1;
  readonly retain: false;
  readonly count: number;
  frameBytes(index: number): number;
}

/** One live connection as a session sees it. Nothing is sent before the CONNACK went out. */
export interface SessionLink {
  /** 4 for MQTT 3.1 and 3.1.1, 5 for MQTT 5. */
  readonly version: 4 | 5;
  /** The client's Receive Maximum (65,535 when not given). */
  readonly receiveMaximum: number;
  /**
   * Encodes for this client and queues for sending.
   * - `sent`: queued;
   * - `too_large`: above the client's Maximum Packet Size: not sent, counts as completed;
   * - `full`: the outbound buffer is at its brim: nothing was queued; call `Session.drained` once
   *   there is room. Never call back into the session from within.
   */
  publish(message: Ttv, delivery: Delivery): "sent" | "too_large" | "full";
  /**
   * Queues the first `count` messages of a run at its QoS, under these ids at QoS 1. False: nothing
   * was queued, each has to be tried by itself. REQUIRES: of QoS 0 or 1, not retained.
   */
  publishRun?(run: MessageRun | TtvRun, count: number, packetIds: Uint16Array): boolean;
  /** Whether `publish` would not say `too_large`. For shared groups, which ask another member. */
  fits(message: Ttv, delivery: Delivery): boolean;
  pubrel(packetId: number, reasonCode: number): void;
  /**
   * So many messages, at most, were gone before the session got to them: retention, a quota, an
   * operator, damage or `backlogMax`. MQTT has no word for it.
   */
  lost?(count: number): void;
  /**
   * Ends the connection, with DISCONNECT and this reason in MQTT 5: 0x8E taken over, 0x97 an
   * expiry-0 session's queue is full. Then call `Session.detach` as for any lost connection: what
   * becomes of the will is the session's business.
   */
  end(reasonCode: number): void;
}

/** Subscriptions served by direct fan-out, kept by the broker in one trie. */
export interface LiveSubscriptions {
  set(target: LiveTarget, subscription: Subscription): void;
  remove(target: LiveTarget, filter: string): void;
  removeAll(target: LiveTarget): void;
}

/** A session as the fan-out sees it. */
export interface LiveTarget {
  readonly clientId: string;
  /**
   * `unstored`: what is stored comes to it by a cursor. `dealt`: a shared group, of which others may be
   * at other nodes; a message is for one of them.
   */
  readonly takes: "all" | "unstored" | "dealt";
  /**
   * A message that matched `subscriptions` (all of this target's that match, at least one).
   * `stored` tells whether it also reaches durable readers by their cursor: a durable session
   * then ignores it here.
   */
  deliver(message: Ttv, subscriptions: readonly Subscription[], stored: boolean): void;
  /**
   * A run of unstored messages, each of which matched `subscriptions`. Returns how many of them were
   * dealt with, from the first on; the others come one by one.
   */
  deliverRun?(run: MessageRun, subscriptions: readonly Subscription[]): number;
}

/** Publishing on behalf of a client that is gone: wills. */
export interface WillPublisher {
  /**
   * Runs the whole publish path (rights, retained, store, fan-out). Resolves when durable. A
   * rejection of kind `invalid` drops the will for good; after any other it is tried again. Called
   * before `connect` resolves too: it must not wait for that connection. With a `stamp` the will is
   * appended under it, whether somebody durable wants it or not; nothing is done when that was done
   * before.
   */
  publishWill(
    will: Will,
    clientId: string,
    user: string | undefined,
    stamp: WriterStamp | undefined,
  ): Promise<void>;
}

// ---------------------------------------------------------------- values

export type Subscription = {
  readonly filter: string;
  /** Granted QoS. */
  readonly qos: Qos;
  readonly noLocal: boolean;
  readonly retainAsPublished: boolean;
  readonly retainHandling: 0 | 1 | 2;
  /** 0 = none. */
  readonly identifier: number;
};

export type Will = {
  readonly topic: string;
  readonly qos: Qos;
  readonly retain: boolean;
  readonly delayS: number;
  readonly version: 4 | 5;
  /** A whole PUBLISH packet in stored form (DUP clear, id slot zero), properties included. */
  readonly frame: Buffer;
  /** Message Expiry Interval of the will, counted from its publication; undefined = none. */
  readonly messageExpiryS: number | undefined;
  readonly expiryOffset: number;
};

export type ConnectRequest = {
  readonly clientId: string;
  /** Authenticated user, undefined for anonymous. */
  readonly user: string | undefined;
  readonly cleanStart: boolean;
  /** Granted Session Expiry Interval in seconds after the cap; 0xFFFFFFFF = never. */
  readonly expiryS: number;
  /** Protocol level as sent: 3, 4 or 5. */
  readonly protocol: number;
  readonly will: Will | undefined;
};

/** How a connection ended, as far as the session's state depends on it. */
export type DetachCause =
  /** DISCONNECT 0x00: the will is deleted. */
  | { readonly kind: "disconnect"; readonly expiryS: number | undefined }
  /** DISCONNECT 0x04 or any close without DISCONNECT: the will counts. */
  | { readonly kind: "lost"; readonly expiryS: number | undefined }
  /** The broker stops: state is kept, wills wait for the restart grace. */
  | { readonly kind: "shutdown" };

// ---------------------------------------------------------------- the session room

export type ConnectOutcome = {
  readonly session: Session;
  readonly sessionPresent: boolean;
  /** Another node has ended a connection of this client id for it. */
  readonly tookOver?: boolean;
};

export interface Sessions {
  /**
   * Before the store replays: reads all durable sessions' filters and counts their interest.
   * Afterwards `start` arms the timers of wills and expiries.
   */
  load(): Promise<void>;
  start(): void;
  /**
   * Creates, resumes or takes over. Everything that changed is durable when it resolves. A link
   * that was attached is ended with 0x8E first. Rejects with SESSION_USER_MISMATCH when the client
   * id belongs to another user: nothing has changed then. Deliveries begin only with
   * `Session.open()`. Before the first QoS 2 publish of a durable session is appended, open its
   * evidence with `Session.claim`.
   */
  connect(request: ConnectRequest, link: SessionLink): Promise<ConnectOutcome>;
  readonly retained: Retained;
  /** The operator's view of durable sessions. */
  readonly inspector: SessionInspector;
  /** The operator's view of shared groups. */
  readonly sharedGroups: GroupInspector;
  /** Detaches who is still attached (as `shutdown`) and commits everything. The store is next. */
  close(): Promise<void>;
  counts(): { readonly durable: number; readonly connected: number };
}

export interface Session {
  readonly clientId: string;
  readonly durable: boolean;
  /** For evidence of QoS 2 publishes; undefined for in-memory sessions. */
  readonly claim: PublisherClaim | undefined;
  /** The CONNACK is out: resends and deliveries may begin. */
  open(): void;
  /**
   * One SUBSCRIBE. Resolves with what to answer per filter once everything is durable (0x97 or 0x83
   * where it could not be made so); then call `sendRetained` right after the SUBACK went out. Rejects
   * with SESSION_STOPPED when the connection has ended meanwhile. Filters are legal; shared ones
   * whole, as `$share/{name}/{filter}`.
   */
  subscribe(subscriptions: readonly Subscription[]): Promise<readonly SubscribeResult[]>;
  /** Those in effect, shared ones whole. */
  subscriptions(): Iterable<Subscription>;
  readonly subscriptionCount: number;
  /** True per filter that existed. Durable when it resolves. */
  unsubscribe(filters: readonly string[]): Promise<readonly boolean[]>;
  /** Starts the paging of retained messages for these results. */
  sendRetained(results: readonly SubscribeResult[]): void;

  /** Acks of deliveries. A protocol error is told by its reason code; undefined = fine. */
  puback(packetId: number, reasonCode: number): number | undefined;
  /** Several of success in a row. At a protocol error it stops, and names the id. */
  pubacks(packetIds: Uint16Array, count: number): number | undefined;
  pubrec(packetId: number, reasonCode: number): number | undefined;
  pubcomp(packetId: number, reasonCode: number): number | undefined;
  /** The link's outbound buffer has room again. */
  drained(): void;

  /** The connection ended. Idempotent; a session taken over is detached already. */
  detach(cause: DetachCause): Promise<void>;
}

export type SubscribeResult = {
  readonly subscription: Subscription;
  /** Granted QoS, or from 0x80 on a failure. */
  readonly reasonCode: number;
  /** The filter was not subscribed before (Retain Handling 1). */
  readonly isNew: boolean;
};

export interface Retained {
  /**
   * Sets (frame with payload) or clears (empty payload) the retained message of a topic. Decided
   * in call order; `done` when durable. On one node a store append made right after joins the same
   * flush.
   */
  put(message: Ttv, isEmpty: boolean, done: (error: CodedError | undefined) => void): void;
  get(topic: string): Promise<Ttv | undefined>;
  /** Pages through matching retained messages, expired ones left out. */
  page(
    filter: string,
    after: string | undefined,
    countMax: number,
  ): Promise<{ messages: Ttv[]; next: string | undefined }>;
}

// ---------------------------------------------------------------- the operator's view

/** Which durable sessions are meant; what is not given does not narrow. */
export type SessionQuery = {
  /** Exactly this one. */
  readonly clientId?: string;
  /** Client ids that begin so. */
  readonly clientIdPrefix?: string;
  readonly state?: "connected" | "offline";
  /** Only those with (or without) messages that wait for their client. */
  readonly backlog?: boolean;
  /** Only those that have (or have not) lost messages to `backlogMax`, retention or damage. */
  readonly dropped?: boolean;
};

export type SessionSummary = {
  readonly clientId: string;
  readonly user: string | undefined;
  readonly state: "connected" | "offline";
  /** The number of the node that its client is connected to, where it is another one. */
  readonly node?: number | undefined;
  /** Commit time of the session's creation. */
  readonly createdUs: number;
  /** End of the last connection; undefined while connected or where a crash hid it. */
  readonly closedUs: number | undefined;
  /** 0xFFFFFFFF = never. */
  readonly expiryS: number;
  readonly subscriptions: number;
  /** Unfinished messages at QoS 1 and 2: sent and not acked, or bound to be sent. */
  readonly inFlight: number;
  /**
   * Messages wait that were not sent yet and have not expired, or (offline) are in flight. An upper
   * bound where some of what matched was read already and lasts longer than the rest.
   */
  readonly backlog: boolean;
  /** How old the position is from which it has to read on; undefined where nothing waits. */
  readonly lagMs: number | undefined;
  /** Messages lost to `backlogMax`, retention or damage since the session was created. */
  readonly dropped: number;
};

/** Sessions for which something may wait that is stored in no later than a time, by log shard. */
export type SessionsBehind = {
  readonly count: number;
  /** The first few of them. */
  readonly clientIds: readonly string[];
};

export type SessionDetail = SessionSummary & {
  readonly protocol: number;
  readonly will: Pick<Will, "topic" | "qos" | "retain" | "delayS"> | undefined;
  readonly filters: readonly Subscription[];
};

/** `after` is the `next` of the page before; `countMax` is at most 1,000. */
export type PageRequest = { readonly after?: string; readonly countMax: number };

export type SessionPage = {
  readonly sessions: readonly SessionSummary[];
  /** Undefined at the end. */
  readonly next: string | undefined;
  /** Sessions that match the query, all pages together. */
  readonly total: number;
};

/** A message of a backlog, as the next connection would get it. */
export type BacklogMessage = {
  readonly message: Ttv;
  readonly qos: Qos;
  /** Sent before, or bound to be sent, and not finished. */
  readonly inFlight: boolean;
};

export type BacklogPage = {
  readonly messages: readonly BacklogMessage[];
  /** Undefined when nothing more waits now. */
  readonly next: string | undefined;
};

/** What an operation on several sessions did, or would do (`dryRun`). */
export type SessionsChanged = {
  readonly clientIds: readonly string[];
  /** Go on with it; undefined = all that match were met. */
  readonly next: string | undefined;
};

export type ChangeRequest = PageRequest & { readonly dryRun: boolean };

/** Looks into durable sessions and ends what is stuck. Client ids that are unknown give undefined. */
export interface SessionInspector {
  /** In order of client ids. Reads the keys of the sessions it returns and no others. */
  list(query: SessionQuery, page: PageRequest): Promise<SessionPage>;
  get(clientId: string): Promise<SessionDetail | undefined>;
  /** Client ids of durable sessions behind `after`, in order. From memory. */
  clientIds(query: {
    readonly prefix: string;
    readonly after: string;
    readonly countMax: number;
  }): { readonly clientIds: readonly string[]; readonly hasMore: boolean };
  /** Reads the subscriptions of a durable session and nothing else of it; none without a session. */
  subscriptionsOf(clientId: string): Promise<readonly Subscription[]>;
  /** Whether a durable session may have a filter that is wanted: false is certain. From memory. */
  mayHave(clientId: string, isWanted: (filter: string) => boolean): boolean;
  /** Subscriptions of all durable sessions whose client ids begin so. From memory. */
  subscriptionCount(prefix: string): Promise<number>;
  /** Sessions that have not read some shard up to the time given for it. From memory. */
  behind(untilUs: Positions): Promise<SessionsBehind>;
  /** The first messages that wait, in the order of delivery; consumes and changes nothing. */
  peek(clientId: string, page: PageRequest): Promise<BacklogPage | undefined>;
  /**
   * Drops the backlog of every session that matches. What is in flight to a connected client stays, and
   * so does an exchange at QoS 2 that has begun.
   */
  purge(query: SessionQuery, request: ChangeRequest): Promise<SessionsChanged>;
  /** Ends every session that matches: 0x98 to who is connected, its will is published. */
  end(query: SessionQuery, request: ChangeRequest): Promise<SessionsChanged>;
  /**
   * Drops one subscription and what waits because of it, as UNSUBSCRIBE does. False when there was
   * none; durable when it resolves.
   */
  removeSubscription(clientId: string, filter: string): Promise<boolean | undefined>;
}

/** A shared group: everybody who subscribes to the same `$share/{name}/{filter}`. */
export type GroupSummary = {
  /** The shared filter, whole. */
  readonly group: string;
  /** It has a cursor: messages wait for the first member to return. */
  readonly durable: boolean;
  /** Those that messages are dealt to. */
  readonly connectedMembers: number;
  /** Durable sessions that subscribe above QoS 0, connected or not. */
  readonly durableMembers: number;
  /** Of a durable group: dealt, not bound in the member's session and not finished. */
  readonly inFlight: number;
  /** Came back from members or found none with room; they are dealt next. */
  readonly returned: number;
  /** Messages wait for a member. */
  readonly backlog: boolean;
  /** Messages lost to retention or damage since the group has been durable. */
  readonly dropped: number;
};

export type GroupQuery = {
  /** Shared filters that begin so. */
  readonly prefix?: string;
  /** Only those with (or without) messages that wait for a member. */
  readonly backlog?: boolean;
};

export type GroupPage = {
  readonly groups: readonly GroupSummary[];
  /** Undefined at the end. */
  readonly next: string | undefined;
  /** Groups that match the query, all pages together. */
  readonly total: number;
};

/** Looks at shared groups, which are all in memory: nothing is read. */
export interface GroupInspector {
  /** In order of their filters. @throws SESSION_PAGE_INVALID. */
  list(query: GroupQuery, page: PageRequest): GroupPage;
}
