// Bytes that a checksum vouches for and that are wrong all the same: records, files and frames of the
// Raft room, changed at random and sealed again. Each is refused with a code or counted, or is a
// value that comes back as it is; nothing else is thrown, and a host lives on.

import { expect, test } from "vitest";
import { crc32, isCodedError, SeededRandom } from "../../src/base/index.ts";
import {
  decodeEntry,
  decodeMessage,
  decodeSnapshotMeta,
  encodeEntry,
  encodeMessage,
  encodeSnapshotMeta,
} from "../../src/raft/codec.ts";
import type { Entry, Message } from "../../src/raft/core/types.ts";
import { decodeForm, encodeForm } from "../../src/raft/host/forming.ts";
import * as frames from "../../src/raft/host/frames.ts";
import { decodeManifest, encodeManifest } from "../../src/raft/host/manifest.ts";
import { isLong } from "../support/amount.ts";
import { hostOf, RaftCluster, type Station } from "../support/raft-cluster.ts";

const cases = Number(process.env.FLAGSTONE_FUZZ_CASES ?? (isLong ? 1_000_000 : 20_000));
const seed = Number(process.env.FLAGSTONE_FUZZ_SEED ?? 1);

const configuration = { voters: [1, 2, 300], learners: [4] };
const entries: Entry[] = [
  { kind: "command", index: 8, term: 3, version: 2, data: Buffer.from("payload of some length") },
  {
    kind: "membership",
    index: 9,
    term: 3,
    change: { op: "promote", node: 300 },
    configuration,
  },
  { kind: "empty", index: 10, term: 4 },
];
const meta = { index: 300, term: 2, configuration, configurationIndex: 12 };
const envelope = { from: 1, to: 2, term: 5 };
const messages: Message[] = [
  { type: "append", ...envelope, prevIndex: 7, prevTerm: 3, commit: 7, entries },
  {
    type: "append-resp",
    ...envelope,
    rejected: true,
    index: 7,
    hintIndex: 6,
    hintTerm: 2,
    commit: 4,
  },
  { type: "vote", ...envelope, lastIndex: 10, lastTerm: 4, transfer: false },
  { type: "pre-vote-resp", ...envelope, granted: true },
  { type: "heartbeat", ...envelope, commit: 7, round: 3 },
  { type: "snapshot", ...envelope, snapshot: meta },
  { type: "read-index", ...envelope, context: "1.2.3" },
];
const manifest = {
  group: 1,
  epoch: 1,
  machineVersion: 1,
  meta,
  chunks: [
    { sizeBytes: 512, crc: 7 },
    { sizeBytes: 9, crc: 8 },
  ],
};
const address = { group: 1, epoch: 1, incarnation: 1 };
const member = {
  node: 1,
  siteId: "51".repeat(16),
  diskId: "d1".repeat(16),
  name: "one",
  address: { host: "127.0.0.1", port: 7000 },
  removed: false,
};

type Kind = {
  readonly name: string;
  readonly seeds: readonly Buffer[];
  readonly isSealed: boolean;
  readonly decode: (bytes: Buffer) => unknown;
  readonly encode: (value: never) => Buffer;
};

const kind = <T>(
  name: string,
  seeds: readonly Buffer[],
  decode: (bytes: Buffer) => T | undefined,
  encode: (value: T) => Buffer,
  isSealed = false,
): Kind => ({ name, seeds, decode, encode, isSealed });

const letters = messages.map((message) => ({ ...address, message: encodeMessage(message) }));
const offer = {
  ...address,
  message: encodeMessage(messages[5] as Message),
  manifest: encodeManifest(manifest),
};
const want = { ...address, node: 2, index: 300, term: 2, next: 1, until: 9 };
const chunk = { ...address, index: 300, term: 2, number: 1, data: Buffer.from("a chunk") };
const notice = { ...address, node: 2, what: "removed" as const };

const note = { ...address, node: 2, data: Buffer.from("a note") };

const kinds: readonly Kind[] = [
  kind("message", messages.map(encodeMessage), decodeMessage, encodeMessage, true),
  kind("entry", entries.map(encodeEntry), decodeEntry, encodeEntry, true),
  kind("meta", [encodeSnapshotMeta(meta)], decodeSnapshotMeta, encodeSnapshotMeta, true),
  kind("manifest", [encodeManifest(manifest)], decodeManifest, encodeManifest, true),
  kind("letters", [frames.encodeLetters(letters)], frames.decodeLetters, frames.encodeLetters),
  kind("offer", [frames.encodeOffer(offer)], frames.decodeOffer, frames.encodeOffer),
  kind("want", [frames.encodeWant(want)], frames.decodeWant, frames.encodeWant),
  kind("chunk", [frames.encodeChunk(chunk)], frames.decodeChunk, frames.encodeChunk),
  kind("notice", [frames.encodeNotice(notice)], frames.decodeNotice, frames.encodeNotice),
  kind("note", [frames.encodeNote(note)], frames.decodeNote, frames.encodeNote),
  kind("form", [encodeForm({ isMember: true, members: [member] })], decodeForm, encodeForm),
];

const odd = [0, 1, 2, 0x7f, 0x80, 0xff];

/** A few changes: bits, odd bytes, bytes put in, left out or doubled, another end. */
function change(random: SeededRandom, given: Buffer): Buffer {
  let bytes = Buffer.from(given);
  for (let left = random.between(1, 4); left > 0; left--) {
    const at = random.below(bytes.length + 1);
    const rest = bytes.subarray(at);
    switch (random.below(6)) {
      case 0:
        if (at < bytes.length) bytes[at] = (bytes[at] as number) ^ (1 << random.below(8));
        break;
      case 1:
        if (at < bytes.length) bytes[at] = random.pick(odd);
        break;
      case 2:
        bytes = Buffer.concat([bytes.subarray(0, at), random.bytes(random.between(1, 9)), rest]);
        break;
      case 3:
        bytes = Buffer.concat([bytes.subarray(0, at), rest.subarray(random.between(1, 8))]);
        break;
      case 4:
        bytes = Buffer.concat([bytes.subarray(0, at), rest.subarray(0, 12), rest]);
        break;
      default:
        bytes = bytes.subarray(0, random.chance(0.1) ? at : bytes.length);
    }
  }
  return bytes;
}

function changeSealed(random: SeededRandom, given: Buffer, isSealed: boolean): Buffer {
  if (!isSealed) return change(random, given);
  const body = change(random, given.subarray(0, given.length - 4));
  const seal = Buffer.alloc(4);
  seal.writeUInt32BE(crc32(body));
  return Buffer.concat([body, seal]);
}

function attempt(run: () => unknown): unknown {
  try {
    return run();
  } catch (error) {
    if (isCodedError(error) && error.code.startsWith("RAFT_")) return undefined;
    throw error;
  }
}

test("records and bodies with right checksums and wrong contents are refused, or are values", () => {
  const random = new SeededRandom(`raft fuzz ${seed}`);
  let taken = 0;
  for (let at = 0; at < cases; at++) {
    const { name, seeds, isSealed, decode, encode } = random.pick(kinds);
    const bytes = changeSealed(random, random.pick(seeds), isSealed);
    const told = (): string => `${name} of seed ${seed}, case ${at}: ${bytes.toString("hex")}`;
    let again: Buffer | undefined;
    let first: Buffer | undefined;
    try {
      const value = attempt(() => decode(bytes));
      if (value === undefined) continue;
      taken++;
      first = encode(value as never);
      again = encode(decode(first) as never);
    } catch (error) {
      throw new Error(told(), { cause: error });
    }
    if (!again.equals(first)) expect.unreachable(`${told()} does not come back`);
  }
  expect(taken / cases).toBeGreaterThan(0.1);
  expect(taken / cases).toBeLessThan(0.9);
});

test("a host takes such frames from a member, counts what it refuses, and lives on", async () => {
  const random = new SeededRandom(`raft frames ${seed}`);
  const cluster = new RaftCluster({ seed });
  await cluster.form(3);
  const leader = await cluster.leader();
  const caught: Buffer[] = [];
  cluster.network.tap = (_from, _to, frame) => {
    if (caught.length < 200) caught.push(Buffer.from(frame));
  };
  for (let count = 0; count < 10; count++) await cluster.propose(leader, `${count}`);
  cluster.network.tap = undefined;
  const [target, source] = cluster.stations.filter(({ node }) => node !== leader.node) as [
    Station,
    Station,
  ];
  const bodies = [
    ...caught.map((frame) => ["messages", frame.subarray(56, frame.length - 4)] as const),
    ["offer", frames.encodeOffer(offer)] as const,
    ["want", frames.encodeWant(want)] as const,
    ["chunk", frames.encodeChunk(chunk)] as const,
    ["notice", frames.encodeNotice(notice)] as const,
    ["note", frames.encodeNote(note)] as const,
    ["form", encodeForm({ isMember: true, members: [member] })] as const,
  ];
  const host = hostOf(target);
  const before = host.counters.framesReceived;
  // A host does a thousand times the work of a codec for each.
  const count = Math.ceil(Math.min(cases, 100_000) / 20);
  for (let at = 0; at < count; at++) {
    const [name, body] = random.pick(random.chance(0.5) ? bodies.slice(-6) : bodies);
    const changed = change(random, body);
    try {
      host.transportEvents.onFrame(frames.encodeFrame(source.identity, name, changed));
    } catch (error) {
      throw new Error(`frame ${at} of seed ${seed}: ${name} ${changed.toString("hex")}`, {
        cause: error,
      });
    }
    if (at % 50 === 0) await cluster.clock.advance(20);
  }
  expect(host.counters.framesReceived - before).toBeGreaterThanOrEqual(count);
  expect(host.counters.refusedBody).toBeGreaterThan(count / 20);
  expect(target.failures).toEqual([]);
  expect(host.failure).toBeUndefined();
  await cluster.close();
});
