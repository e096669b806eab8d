import { expect, test } from "vitest";
import { crc32, SeededRandom } from "../../../../src/base/index.ts";
import {
  decodeChunk,
  decodeLetters,
  decodeNote,
  decodeNotice,
  decodeOffer,
  decodeWant,
  encodeChunk,
  encodeFrame,
  encodeLetters,
  encodeNote,
  encodeNotice,
  encodeOffer,
  encodeWant,
  type FrameKind,
  frameOverheadBytes,
  openFrame,
} from "../../../../src/raft/host/frames.ts";
import { decodeManifest, encodeManifest } from "../../../../src/raft/host/manifest.ts";
import type { Identity } from "../../../../src/raft/index.ts";
import { hostOf, RaftCluster, type Station } from "../../../support/raft-cluster.ts";

const identity = { clusterId: "c1".repeat(16), siteId: "51".repeat(16), diskId: "d1".repeat(16) };
const check = {
  clusterId: identity.clusterId,
  frameBytesMax: 4096,
  knows: (siteId: string, diskId: string, _kind: FrameKind) =>
    siteId === identity.siteId && diskId === identity.diskId,
};
const body = Buffer.from("body");

/** With the checksum made right again. */
function changed(at: number, bytes: Buffer, sender: Identity = identity): Buffer {
  const frame = encodeFrame(sender, "messages", body);
  bytes.copy(frame, at);
  frame.writeUInt32BE(crc32(frame.subarray(4, frame.length - 4)), frame.length - 4);
  return frame;
}

test("a frame is as docs/formats/raft.md shows it", () => {
  const frame = encodeFrame(
    identity,
    "messages",
    encodeLetters([{ group: 7, epoch: 1, incarnation: 2, message: Buffer.from("hi") }]),
  );
  expect(frame.toString("hex")).toBe(
    `0000003ff7520101${"c1".repeat(16)}${"51".repeat(16)}${"d1".repeat(16)}` +
      "01070102026869" +
      "943a9b3a",
  );
});

test("each part of a frame is checked before anything behind it", () => {
  expect(openFrame(encodeFrame(identity, "messages", body), check)).toMatchObject({
    kind: "messages",
  });
  expect(openFrame(Buffer.alloc(10), check)).toBe("length");
  expect(openFrame(Buffer.alloc(5000), check)).toBe("length");
  expect(openFrame(changed(0, Buffer.from("00000000", "hex")), check)).toBe("length");
  expect(openFrame(changed(4, Buffer.from("dead", "hex")), check)).toBe("magic");
  expect(openFrame(changed(6, Buffer.from([2])), check)).toBe("version");
  expect(openFrame(changed(8, Buffer.from([0])), check)).toBe("cluster");
  expect(openFrame(changed(7, Buffer.from([99])), check)).toBe("kind");
  expect(openFrame(changed(24, Buffer.from([0])), check)).toBe("sender");
  expect(openFrame(changed(40, Buffer.from([0])), check)).toBe("sender");
  const rotten = encodeFrame(identity, "messages", body);
  rotten[frameOverheadBytes - 4] = 0;
  expect(openFrame(rotten, check)).toBe("crc");
});

test("no flipped bit and no cut of a frame passes", () => {
  const frame = encodeFrame(identity, "chunk", Buffer.from("some data of a chunk"));
  for (let bit = 0; bit < frame.length * 8; bit++) {
    const damaged = Buffer.from(frame);
    damaged[bit >> 3] = (damaged[bit >> 3] as number) ^ (1 << (bit & 7));
    expect(typeof openFrame(damaged, check)).toBe("string");
  }
  for (let size = 0; size < frame.length; size++) {
    expect(typeof openFrame(frame.subarray(0, size), check)).toBe("string");
  }
});

const address = { group: 3, epoch: 2, incarnation: 5 };

test("bodies come back as they were, and with a byte more or less not at all", () => {
  const bytes = (text: string): Buffer => Buffer.from(text);
  const letters = [
    { ...address, message: bytes("one") },
    { ...address, message: bytes("two") },
  ];
  const offer = { ...address, message: bytes("m"), manifest: bytes("n") };
  const want = { ...address, node: 4, index: 10, term: 2, next: 3, until: 9 };
  const chunk = { ...address, index: 10, term: 2, number: 3, data: bytes("data") };
  const notice = { ...address, node: 4, what: "removed" as const };
  const note = { ...address, node: 4, data: bytes("note") };
  const cases: Array<[Buffer, (body: Buffer) => unknown, unknown]> = [
    [encodeLetters(letters), decodeLetters, letters],
    [encodeOffer(offer), decodeOffer, offer],
    [encodeWant(want), decodeWant, want],
    [encodeChunk(chunk), decodeChunk, chunk],
    [encodeNotice(notice), decodeNotice, notice],
    [encodeNote(note), decodeNote, note],
  ];
  for (const [encoded, decode, value] of cases) {
    expect(decode(encoded)).toEqual(value);
    expect(decode(Buffer.concat([encoded, Buffer.from([0])]))).toBeUndefined();
    for (let size = 0; size < encoded.length; size++) {
      expect(decode(encoded.subarray(0, size))).toBeUndefined();
    }
  }
});

test("a manifest is as docs/formats/raft.md shows it, and no flipped bit of it passes", () => {
  const configuration = { voters: [1, 2, 3], learners: [4] };
  const meta = { index: 300, term: 2, configuration, configurationIndex: 12 };
  const manifest = {
    group: 7,
    epoch: 1,
    machineVersion: 5,
    meta,
    chunks: [{ sizeBytes: 9, crc: 10 }],
  };
  const bytes = encodeManifest(manifest);
  expect(bytes.toString("hex")).toBe(
    "464c414752534e5000010701050f01ac02020c030102030104bfd3196801090000000a612c78a1",
  );
  expect(decodeManifest(bytes)).toEqual(manifest);
  for (let bit = 0; bit < bytes.length * 8; bit++) {
    const damaged = Buffer.from(bytes);
    damaged[bit >> 3] = (damaged[bit >> 3] as number) ^ (1 << (bit & 7));
    expect(decodeManifest(damaged)).toBeUndefined();
  }
  const newer = Buffer.from(bytes);
  newer.writeUInt16BE(2, 8);
  newer.writeUInt32BE(crc32(newer.subarray(0, -4)), newer.length - 4);
  expect(() => decodeManifest(newer, "snapshots/manifest")).toThrow(
    "snapshots/manifest has format 2, and this release reads up to 1: start the release that wrote " +
      "this directory, or a later one",
  );
});

test("whatever arrives is counted, and the node lives on", async () => {
  const cluster = new RaftCluster();
  await cluster.form(3);
  const leader = await cluster.leader();
  const [target, source] = cluster.stations as [Station, Station];
  const random = new SeededRandom(3);
  const host = hostOf(target);
  const sent = source.identity;
  const rotten = encodeFrame(sent, "messages", body);
  rotten[frameOverheadBytes - 4] = 0;
  const bad: Array<[string, Buffer]> = [
    ["refusedLength", random.bytes(30)],
    ["refusedMagic", changed(4, Buffer.from("dead", "hex"), sent)],
    ["refusedVersion", changed(6, Buffer.from([2]), sent)],
    ["refusedKind", changed(7, Buffer.from([99]), sent)],
    ["refusedCrc", rotten],
    ["refusedCluster", encodeFrame({ ...sent, clusterId: "00".repeat(16) }, "messages", body)],
    ["refusedSender", encodeFrame({ ...sent, diskId: "00".repeat(16) }, "messages", body)],
    ["refusedSender", encodeFrame({ ...sent, siteId: "00".repeat(16) }, "messages", body)],
    ["refusedKind", encodeFrame(sent, "hello", body)],
    ["refusedBody", encodeFrame(sent, "messages", random.bytes(50))],
    ["refusedBody", encodeFrame(sent, "offer", random.bytes(50))],
    [
      "refusedBody",
      encodeFrame(
        sent,
        "messages",
        encodeLetters([{ group: 1, epoch: 1, incarnation: 1, message: random.bytes(40) }]),
      ),
    ],
    [
      "lettersWrongEpoch",
      encodeFrame(
        sent,
        "messages",
        encodeLetters([{ group: 1, epoch: 9, incarnation: 1, message: random.bytes(40) }]),
      ),
    ],
    [
      "lettersUnknownGroup",
      encodeFrame(
        sent,
        "messages",
        encodeLetters([{ group: 99, epoch: 1, incarnation: 1, message: random.bytes(40) }]),
      ),
    ],
  ];
  for (const [counter, frame] of bad) {
    const before = (host.counters as Record<string, number>)[counter] as number;
    host.transportEvents.onFrame(frame);
    expect((host.counters as Record<string, number>)[counter]).toBe(before + 1);
  }
  for (let count = 0; count < 2_000; count++) {
    const kind = random.pick([
      "messages",
      "offer",
      "want",
      "chunk",
      "notice",
      "form",
      "note",
    ] as const);
    host.transportEvents.onFrame(encodeFrame(sent, kind, random.bytes(random.below(80))));
  }
  expect(await cluster.propose(leader, "still here")).toEqual(["1"]);
  await cluster.close();
});
