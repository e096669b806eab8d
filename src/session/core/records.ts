// Codec of the records a session keeps in `state` (docs/formats/session.md). Every record begins
// with its version; a newer version than known is refused, never guessed at.
//
// Decoded byte fields are copies: a record outlives the page it was read from.

import { ByteReader, ByteWriter, isCodedError } from "../../base/index.ts";
import type { Positions, Ttv, TtvForm, TtvRef } from "../../store/index.ts";
import type { Qos, Subscription, Will } from "../api.ts";
import { sessionErrors } from "../errors.ts";

const version = 1;
/** `live` and `due` say whose the session is since their version 2; both versions are read. */
const versionWithUser = 2;
/** At a node of a cluster `claim` and `live` name it; by itself a node writes the version before. */
const claimWithOwner = 2;
const liveWithOwner = 3;

/** Session Expiry Interval that never passes. */
export const expiryNever = 0xffffffff;
/** Stands for "never" where a time is stored. */
export const neverUs = Number.MAX_SAFE_INTEGER;

/** A start of a node of a cluster: no two lives of any directory have the same. */
export type Owner = { readonly node: number; readonly start: string };

export type ClaimRecord = {
  readonly clientId: string;
  readonly user: string | undefined;
  /** Whose connection it is; undefined at a node by itself, and where its owner is taken for dead. */
  readonly owner: Owner | undefined;
  readonly protocol: number;
  /** Session Expiry Interval of the current or last connection. */
  readonly expiryS: number;
  /** 0: the commit time of this very record. */
  readonly incarnation: number;
  /** Start of the process that made the claim, wall microseconds. */
  readonly bootUs: number;
  /** The removal of the session has begun and must be finished before anything else. */
  readonly removing: boolean;
};

export type ClosedRecord = {
  readonly closedUs: number;
  readonly expiryS: number;
  /** Moment in the session's key under `due/`; 0 while it is under `live/`. */
  readonly dueUs: number;
};

export type IdsRecord = {
  /** True after an orderly end: `next` is exact and nothing above the cursor was sent. */
  readonly exact: boolean;
  /** Positions count packet ids taken: position p stands for id (p - 1) % 65,535 + 1. */
  readonly next: number;
  /** Positions below it may have been used. */
  readonly reservedEnd: number;
  /** What lies above the cursor and not above this may have been sent by this owner. */
  readonly sentUntil: Positions;
  /** The same, left by owners that ended without notice. */
  readonly doubtUntil: Positions;
};

export type CursorRecord = {
  readonly positions: Positions;
  /** Messages lost to `backlogMax`, retention or damage so far. */
  readonly dropped: number;
};

export type SubscriptionRecord = { readonly subscription: Subscription; readonly start: Positions };

export type InFlightSource =
  /** `group`: the shared group that dealt it. */
  | { readonly kind: "log"; readonly ref: TtvRef; readonly group?: string }
  | { readonly kind: "retained"; readonly message: Ttv };

export type InFlightRecord = {
  readonly packetId: number;
  readonly qos: 1 | 2;
  readonly retain: boolean;
  readonly sent: boolean;
  readonly released: boolean;
  readonly sizeBytes: number;
  readonly identifiers: readonly number[];
  readonly source: InFlightSource;
};

/** A message of a shared group that somebody holds, or that is to be dealt again. */
export type AssignedRecord = {
  readonly ref: TtvRef;
  readonly qos: 1 | 2;
  /** Who holds it; "" = nobody. At QoS 2 its session says whether it is bound. */
  readonly clientId: string;
  /** Somebody may have seen it. */
  readonly sent: boolean;
};

export type JobRecord = {
  readonly filter: string;
  /** Position after which to go on; undefined = from the beginning. */
  readonly after: string | undefined;
  /** Topic up to which messages may have been sent above `after`. */
  readonly doubtTopic: string | undefined;
  /** Applied times of the state shards once the SUBSCRIBE was durable: newer ones come live. */
  readonly start: Positions;
};

export type LiveRecord = {
  readonly clientId: string;
  /** As in the claim: what a start counts by. */
  readonly user: string | undefined;
  readonly owner: Owner | undefined;
  readonly bootUs: number;
};
export type DueRecord = {
  readonly clientId: string;
  readonly user: string | undefined;
  readonly incarnation: number;
  /** As the session was closed: what a look at all sessions needs of it. */
  readonly cursor: Positions;
  readonly inFlight: number;
  readonly dropped: number;
};
export type FireRecord = {
  readonly clientId: string;
  readonly user: string | undefined;
  readonly will: Will;
  /** Epoch of the writer that publishes it; 0 = none was opened yet. */
  readonly writerEpoch: number;
};

// ---------------------------------------------------------------- claim, closed, ids, cursor

export function encodeClaim(record: ClaimRecord): Buffer {
  const flags = (record.user === undefined ? 0 : 1) | (record.removing ? 2 : 0);
  const { owner } = record;
  const out = begin(owner === undefined ? version : claimWithOwner);
  out.u8(flags).string(record.clientId);
  if (record.user !== undefined) out.string(record.user);
  out.u8(record.protocol).u32(record.expiryS).varint(record.incarnation).varint(record.bootUs);
  return writeOwner(out, owner).finish();
}

export function decodeClaim(bytes: Uint8Array): ClaimRecord {
  const read = (input: ByteReader, found: number): ClaimRecord => {
    const flags = input.u8();
    return {
      clientId: input.string(),
      user: (flags & 1) === 0 ? undefined : input.string(),
      protocol: input.u8(),
      expiryS: input.u32(),
      incarnation: input.varint(),
      bootUs: input.varint(),
      removing: (flags & 2) !== 0,
      owner: found < claimWithOwner ? undefined : readOwner(input),
    };
  };
  return decode("claim", bytes, read, claimWithOwner);
}

function writeOwner(out: ByteWriter, owner: Owner | undefined): ByteWriter {
  return owner === undefined ? out : out.varint(owner.node).string(owner.start);
}

function readOwner(input: ByteReader): Owner {
  return { node: input.varint(), start: input.string() };
}

export function encodeClosed(record: ClosedRecord): Buffer {
  return begin().varint(record.closedUs).u32(record.expiryS).varint(record.dueUs).finish();
}

export function decodeClosed(bytes: Uint8Array): ClosedRecord {
  return decode("closed", bytes, (input) => ({
    closedUs: input.varint(),
    expiryS: input.u32(),
    dueUs: input.varint(),
  }));
}

export function encodeIds(record: IdsRecord): Buffer {
  const out = begin()
    .u8(record.exact ? 1 : 0)
    .varint(record.next)
    .varint(record.reservedEnd);
  writePositions(out, record.sentUntil);
  writePositions(out, record.doubtUntil);
  return out.finish();
}

export function decodeIds(bytes: Uint8Array): IdsRecord {
  return decode("ids", bytes, (input) => ({
    exact: (input.u8() & 1) !== 0,
    next: input.varint(),
    reservedEnd: input.varint(),
    sentUntil: readPositions(input),
    doubtUntil: readPositions(input),
  }));
}

export function encodeCursor({ positions, dropped }: CursorRecord): Buffer {
  const out = begin();
  writePositions(out, positions);
  return out.varint(dropped).finish();
}

export function decodeCursor(bytes: Uint8Array): CursorRecord {
  return decode("cursor", bytes, (input) => ({
    positions: readPositions(input),
    dropped: input.varint(),
  }));
}

// ---------------------------------------------------------------- subscriptions, jobs, indexes

export function encodeSubscription(record: SubscriptionRecord): Buffer {
  const { subscription } = record;
  const options =
    subscription.qos |
    (subscription.noLocal ? 4 : 0) |
    (subscription.retainAsPublished ? 8 : 0) |
    (subscription.retainHandling << 4);
  const out = begin().u8(options).varint(subscription.identifier).string(subscription.filter);
  writePositions(out, record.start);
  return out.finish();
}

export function decodeSubscription(bytes: Uint8Array): SubscriptionRecord {
  return decode("subscription", bytes, (input) => {
    const options = input.u8();
    const identifier = input.varint();
    const subscription: Subscription = {
      filter: input.string(),
      qos: qosOf(options & 3),
      noLocal: (options & 4) !== 0,
      retainAsPublished: (options & 8) !== 0,
      retainHandling: qosOf((options >> 4) & 3),
      identifier,
    };
    return { subscription, start: readPositions(input) };
  });
}

export function encodeJob(record: JobRecord): Buffer {
  const flags = (record.after === undefined ? 0 : 1) | (record.doubtTopic === undefined ? 0 : 2);
  const out = begin().u8(flags).string(record.filter);
  if (record.after !== undefined) out.string(record.after);
  if (record.doubtTopic !== undefined) out.string(record.doubtTopic);
  writePositions(out, record.start);
  return out.finish();
}

export function decodeJob(bytes: Uint8Array): JobRecord {
  return decode("job", bytes, (input) => {
    const flags = input.u8();
    return {
      filter: input.string(),
      after: (flags & 1) === 0 ? undefined : input.string(),
      doubtTopic: (flags & 2) === 0 ? undefined : input.string(),
      start: readPositions(input),
    };
  });
}

export function encodeLive(record: LiveRecord): Buffer {
  const { owner } = record;
  const out = begin(owner === undefined ? versionWithUser : liveWithOwner);
  out.string(record.clientId).varint(record.bootUs);
  return writeOwner(writeUser(out, record.user), owner).finish();
}

export function decodeLive(bytes: Uint8Array): LiveRecord {
  const read = (input: ByteReader, found: number): LiveRecord => ({
    clientId: input.string(),
    bootUs: input.varint(),
    user: readUser(input, found),
    owner: found < liveWithOwner ? undefined : readOwner(input),
  });
  return decode("live", bytes, read, liveWithOwner);
}

function writeUser(out: ByteWriter, user: string | undefined): ByteWriter {
  return user === undefined ? out.u8(0) : out.u8(1).string(user);
}

function readUser(input: ByteReader, found: number): string | undefined {
  if (found < versionWithUser || input.u8() === 0) return undefined;
  return input.string();
}

export function encodeDue(record: DueRecord): Buffer {
  const out = begin(versionWithUser).string(record.clientId).varint(record.incarnation);
  writePositions(out, record.cursor);
  out.varint(record.inFlight).varint(record.dropped);
  return writeUser(out, record.user).finish();
}

export function decodeDue(bytes: Uint8Array): DueRecord {
  const read = (input: ByteReader, found: number): DueRecord => ({
    clientId: input.string(),
    incarnation: input.varint(),
    cursor: readPositions(input),
    inFlight: input.varint(),
    dropped: input.varint(),
    user: readUser(input, found),
  });
  return decode("due", bytes, read, versionWithUser);
}

// ---------------------------------------------------------------- in flight, messages, wills

const sentFlag = 8;
const releasedFlag = 16;
const retainedFlag = 32;
const groupFlag = 64;

export function encodeInFlight(record: InFlightRecord): Buffer {
  const flags =
    record.qos |
    (record.retain ? 4 : 0) |
    (record.sent ? sentFlag : 0) |
    (record.released ? releasedFlag : 0) |
    (record.source.kind === "retained" ? retainedFlag : 0) |
    (record.source.kind === "log" && record.source.group !== undefined ? groupFlag : 0);
  const out = begin().u8(flags).u16(record.packetId).varint(record.sizeBytes);
  out.varint(record.identifiers.length);
  for (const identifier of record.identifiers) out.varint(identifier);
  if (record.source.kind === "retained") {
    writeMessage(out, record.source.message);
  } else {
    writeRef(out, record.source.ref);
    if (record.source.group !== undefined) out.string(record.source.group);
  }
  return out.finish();
}

export function decodeInFlight(bytes: Uint8Array): InFlightRecord {
  return decode("in-flight", bytes, (input) => {
    const flags = input.u8();
    const packetId = input.u16();
    const sizeBytes = input.varint();
    const identifiers: number[] = [];
    for (let left = input.varint(); left > 0; left--) identifiers.push(input.varint());
    return {
      packetId,
      qos: (flags & 3) === 2 ? 2 : 1,
      retain: (flags & 4) !== 0,
      sent: (flags & sentFlag) !== 0,
      released: (flags & releasedFlag) !== 0,
      sizeBytes,
      identifiers,
      source: readSource(input, flags),
    };
  });
}

/** The claim of a shared group: its whole name. */
export function encodeGroup(name: string): Buffer {
  return begin().string(name).finish();
}

export function decodeGroup(bytes: Uint8Array): string {
  return decode("group", bytes, (input) => input.string());
}

export function encodeAssigned({ ref, qos, clientId, sent }: AssignedRecord): Buffer {
  const out = begin()
    .u8(qos | (sent ? sentFlag : 0))
    .string(clientId);
  writeRef(out, ref);
  return out.finish();
}

export function decodeAssigned(bytes: Uint8Array): AssignedRecord {
  return decode("assigned", bytes, (input) => {
    const flags = input.u8();
    const clientId = input.string();
    const qos = (flags & 3) === 2 ? 2 : 1;
    return { qos, clientId, sent: (flags & sentFlag) !== 0, ref: readRef(input) };
  });
}

function readSource(input: ByteReader, flags: number): InFlightSource {
  if ((flags & retainedFlag) !== 0) return { kind: "retained", message: readMessage(input) };
  const ref = readRef(input);
  return (flags & groupFlag) === 0
    ? { kind: "log", ref }
    : { kind: "log", ref, group: input.string() };
}

function writeRef(out: ByteWriter, { shard, generation, stream, timeUs }: TtvRef): void {
  out.varint(shard).varint(generation).varint(stream).varint(timeUs);
}

function readRef(input: ByteReader): TtvRef {
  const shard = input.varint();
  const generation = input.varint();
  const stream = input.varint();
  return { shard, generation, stream, timeUs: input.varint() };
}

/** A retained message, as kept under its topic. */
export function encodeMessage(message: Ttv): Buffer {
  const out = begin();
  writeMessage(out, message);
  return out.finish();
}

export function decodeMessage(bytes: Uint8Array): Ttv {
  return decode("message", bytes, readMessage);
}

const forms: readonly TtvForm[] = ["raw", "v4", "v5"];

function writeMessage(out: ByteWriter, message: Ttv): void {
  out.u8(forms.indexOf(message.form) | (message.qos << 2) | (message.retain ? 16 : 0));
  out.string(message.topic).varint(message.timeUs).string(message.publisher);
  out.varint(message.expiryUs).varint(message.expiryOffset).bytes(message.frame);
}

function readMessage(input: ByteReader): Ttv {
  const flags = input.u8();
  const topic = input.string();
  const timeUs = input.varint();
  const publisher = input.string();
  const expiryUs = input.varint();
  const expiryOffset = input.varint();
  return {
    topic,
    timeUs,
    publisher,
    form: forms[flags & 3] ?? "raw",
    qos: qosOf((flags >> 2) & 3),
    retain: (flags & 16) !== 0,
    expiryUs,
    expiryOffset,
    frame: Buffer.from(input.bytes()),
  };
}

export function encodeWill(will: Will): Buffer {
  const out = begin();
  writeWill(out, will);
  return out.finish();
}

export function decodeWill(bytes: Uint8Array): Will {
  return decode("will", bytes, readWill);
}

export function encodeFire(record: FireRecord): Buffer {
  const out = begin()
    .u8(record.user === undefined ? 0 : 1)
    .string(record.clientId);
  if (record.user !== undefined) out.string(record.user);
  out.varint(record.writerEpoch);
  writeWill(out, record.will);
  return out.finish();
}

export function decodeFire(bytes: Uint8Array): FireRecord {
  return decode("fire", bytes, (input) => {
    const flags = input.u8();
    const clientId = input.string();
    const user = (flags & 1) === 0 ? undefined : input.string();
    const writerEpoch = input.varint();
    return { clientId, user, will: readWill(input), writerEpoch };
  });
}

function writeWill(out: ByteWriter, will: Will): void {
  const expires = will.messageExpiryS !== undefined;
  out.u8(will.qos | (will.retain ? 4 : 0) | (will.version === 5 ? 8 : 0) | (expires ? 16 : 0));
  out.string(will.topic).u32(will.delayS).bytes(will.frame).varint(will.expiryOffset);
  if (will.messageExpiryS !== undefined) out.u32(will.messageExpiryS);
}

function readWill(input: ByteReader): Will {
  const flags = input.u8();
  const topic = input.string();
  const delayS = input.u32();
  const frame = Buffer.from(input.bytes());
  const expiryOffset = input.varint();
  return {
    topic,
    qos: qosOf(flags & 3),
    retain: (flags & 4) !== 0,
    delayS,
    version: (flags & 8) === 0 ? 4 : 5,
    frame,
    messageExpiryS: (flags & 16) === 0 ? undefined : input.u32(),
    expiryOffset,
  };
}

// ---------------------------------------------------------------- shared

function begin(written = version): ByteWriter {
  return new ByteWriter(64).u8(written);
}

function decode<T>(
  record: string,
  bytes: Uint8Array,
  read: (input: ByteReader, found: number) => T,
  known = version,
): T {
  try {
    const input = new ByteReader(bytes);
    const found = input.u8();
    if (found < version || found > known) {
      throw sessionErrors.recordVersion({ record, version: found, known });
    }
    const value = read(input, found);
    if (input.remaining === 0) return value;
    throw sessionErrors.recordCorrupt({ record, reason: `${input.remaining} bytes too many` });
  } catch (error) {
    if (isCodedError(error) && error.code.startsWith("SESSION_")) throw error;
    throw sessionErrors.recordCorrupt({ record, reason: "it ends early" }, error);
  }
}

function writePositions(out: ByteWriter, positions: Positions): void {
  out.varint(positions.size);
  for (const [shard, timeUs] of positions) out.varint(shard).varint(timeUs);
}

function readPositions(input: ByteReader): Map<number, number> {
  const positions = new Map<number, number>();
  for (let left = input.varint(); left > 0; left--) positions.set(input.varint(), input.varint());
  return positions;
}

function qosOf(bits: number): Qos {
  return bits === 0 || bits === 1 ? bits : 2;
}
