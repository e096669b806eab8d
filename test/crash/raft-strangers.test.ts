// Whatever knocks at the doors of a running cluster: noise, halves, idle crowds, frames that are wrong
// in every part of their head, old copies, and somebody who speaks as a member, which without mutual
// TLS costs that member its connection. No node may end, and clients see one store.

import { connect, type Socket } from "node:net";
import { join } from "node:path";
import { expect, test } from "vitest";
import { crc32, nodeDisk, SeededRandom } from "../../src/base/index.ts";
import { encodeFrame, encodeLetters } from "../../src/raft/host/frames.ts";
import { encodeHello } from "../../src/raft/host/hello.ts";
import { findAnomaly, type Identity, readIdentity } from "../../src/raft/index.ts";
import { isLong } from "../support/amount.ts";
import { KvCluster, sleep } from "../support/raft-processes.ts";
import { withTemporaryFolder } from "../support/temporary-folder.ts";

const seed = process.env.FLAGSTONE_SEED ?? "1";
const knocks = isLong ? 500 : 60;

const hello = (identity: Identity): Buffer => {
  return encodeFrame(identity, "hello", encodeHello("", undefined));
};

/** With one byte changed, and the checksum right again. */
function changed(frame: Buffer, at: number): Buffer {
  frame[at] = (frame[at] as number) ^ 9;
  const end = frame.length - 4;
  frame.writeUInt32BE(crc32(frame.subarray(4, end)), end);
  return frame;
}

function letters(random: SeededRandom, place: { group: number; epoch: number }): Buffer {
  return encodeLetters([{ ...place, incarnation: 1, message: random.bytes(40) }]);
}

/** What each kind of stranger says; `member` is one that the node knows. */
const strangers: Readonly<Record<string, (member: Identity, random: SeededRandom) => Buffer[]>> = {
  idle: () => [],
  noise: (_, random) => [random.bytes(1 + random.below(3_000))],
  "half a hello": (member, random) => [hello(member).subarray(0, random.below(60))],
  "another cluster": (member) => [changed(hello(member), 8)],
  "another site": (member) => [changed(hello(member), 24)],
  "another disk": (member, random) => {
    const other = { ...member, diskId: "77".repeat(16) };
    return [hello(other), encodeFrame(other, "messages", random.bytes(50))];
  },
  "another version": (member) => [changed(hello(member), 6)],
  "a bad checksum": (member) => {
    const frame = hello(member);
    frame[60] = (frame[60] as number) ^ 1;
    return [frame];
  },
  "an old copy": (member) => {
    const body = encodeHello("", { start: 0, mark: "ab".repeat(16) });
    return [encodeFrame(member, "hello", body)];
  },
  "noise of a member": (member, random) => [hello(member), random.bytes(500)],
  "half a frame of a member": (member, random) => {
    const frame = encodeFrame(member, "messages", random.bytes(5_000));
    return [hello(member), frame.subarray(0, 3_000)];
  },
  "another epoch or group": (member, random) => {
    const places = [
      { group: 1, epoch: 99 },
      { group: 7, epoch: 1 },
      { group: 1, epoch: 1 },
    ];
    const frames = places.map((place) => encodeFrame(member, "messages", letters(random, place)));
    return [hello(member), ...frames];
  },
};

test("strangers at the doors of a cluster end no node, and its clients see one store", () =>
  withTemporaryFolder(async (folder) => {
    const cluster = await KvCluster.start(folder, 3);
    const random = new SeededRandom(`strangers ${seed}`);
    const sockets: Socket[] = [];
    let isOver = false;
    try {
      const clients = ["a", "b"].map((key) => cluster.client(key, () => isOver));
      const endMs = performance.now() + 60_000;
      while (cluster.acks.length < 20 && performance.now() < endMs) await sleep(50);
      const members: Identity[] = [];
      for (const { node } of cluster.nodes) {
        members.push(await readIdentity(nodeDisk, join(folder, `n${node}`, "raft")));
      }
      const before = cluster.acks.length;
      for (let knock = 0; knock < knocks; knock++) {
        const [, speak] = random.pick(Object.entries(strangers));
        const node = random.below(3);
        // A crowd now and then: more than a node takes.
        for (let left = random.chance(0.05) ? 300 : 1; left > 0; left--) {
          const socket = connect(join(folder, `node${node + 1}`));
          sockets.push(socket);
          socket.on("error", () => socket.destroy());
          socket.resume();
          for (const bytes of speak(members[(node + 1) % 3] as Identity, random)) {
            socket.write(bytes);
          }
        }
        await sleep(random.below(100));
      }
      expect(cluster.acks.length).toBeGreaterThan(before);
      for (const socket of sockets) socket.destroy();
      isOver = true;
      await Promise.all(clients);
      await cluster.readAll();
      for (const [key, history] of cluster.histories) {
        expect(`${key}: ${findAnomaly(history) ?? "linearizable"}`).toBe(`${key}: linearizable`);
      }
      for (const { isUp, stderr } of cluster.nodes) expect(isUp, stderr).toBe(true);
      const longest = Math.round(cluster.stallsMs()[0] ?? 0);
      const written = `${cluster.acks.length} writes acknowledged, longest stall ${longest} ms`;
      console.log(`${sockets.length} strangers, seed ${seed}: ${written}`);
    } finally {
      isOver = true;
      await cluster.close();
    }
  }));
