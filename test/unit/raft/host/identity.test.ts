// Directories that are refused say what to do in the sentence itself, and a first formatting that
// was cut off can be begun again.

import { expect, test } from "vitest";
import { SeededRandom, SimClock, SimDisk, writeFully } from "../../../../src/base/index.ts";
import { findRaftData } from "../../../../src/raft/host/identity.ts";
import { writeTwin } from "../../../../src/raft/host/twin-file.ts";
import {
  beginLife,
  formatRaftDir,
  type Identity,
  readIdentity,
} from "../../../../src/raft/index.ts";

const dir = "data/raft";
const ids = { clusterId: "c1".repeat(16), siteId: "51".repeat(16) };

function machine(seed: number) {
  const clock = new SimClock();
  const disk = new SimDisk({ clock, random: new SeededRandom(seed) });
  const random = new SeededRandom(seed + 1);
  const format = (): Promise<Identity> => formatRaftDir(disk.attach(), dir, { ...ids, random });
  const read = (expected = {}): Promise<Identity> => readIdentity(disk.attach(), dir, expected);
  const put = async (path: string, bytes: Uint8Array): Promise<void> => {
    const file = await disk.open(path, "create");
    await writeFully(file, bytes, 0);
    await file.close();
  };
  return { clock, disk, random, format, read, put };
}

test("a first formatting that is cut off anywhere is begun again, and one that was done stands", async () => {
  const left = new Set<string>();
  for (let seed = 0; seed < 300; seed++) {
    const { clock, disk, format, read } = machine(seed);
    let done: Identity | undefined;
    void format().then((identity) => {
      done = identity;
    });
    await clock.advance((seed % 100) / 5);
    const kept = done;
    if (seed % 2 === 0) disk.crash();
    else disk.kill();
    const names = await clock.complete(disk.list(dir).catch(() => []));
    left.add(names.map(({ name }) => name).join(" "));
    const found = await clock.complete(findRaftData(disk.attach(), dir));
    if (found === undefined) {
      expect(kept).toBeUndefined();
      await expect(clock.complete(read())).rejects.toMatchObject({ code: "RAFT_DIR_MISSING" });
      await clock.complete(format());
    }
    const identity = await clock.complete(read(ids));
    if (kept !== undefined) expect(identity).toEqual(kept);
    expect(await clock.complete(disk.exists(`${dir}/meta`))).toBe(true);
    expect(await clock.complete(disk.exists(`${dir}/identity.b`))).toBe(true);
  }
  expect(left).toContain("meta");
  expect(left).toContain("identity.a.new meta");
  expect(left).toContain("identity.a meta");
});

test("whatever a member may have left is neither opened without its identity nor formatted over", async () => {
  const remains: Record<string, (place: ReturnType<typeof machine>) => Promise<unknown>> = {
    meta: ({ put }) => put(`${dir}/meta`, Buffer.alloc(1)),
    "members.a": ({ put }) => put(`${dir}/members.a`, Buffer.from("x")),
    "identity.b.new": ({ put }) => put(`${dir}/identity.b.new`, Buffer.from("x")),
    starts: ({ disk, random }) => beginLife(disk, dir, random),
    snapshots: ({ disk }) => disk.makeDir(`${dir}/snapshots`),
  };
  for (const [name, leave] of Object.entries(remains)) {
    const place = machine(3);
    const { clock, disk, format, read } = place;
    await clock.complete(disk.makeDir(dir));
    await clock.complete(leave(place));
    await expect(clock.complete(read())).rejects.toMatchObject({
      code: "RAFT_DIR_WIPED",
      message:
        `${dir} has lost the identity of the member that it belongs to, and still holds ${name}: ` +
        "bring the whole disk back, or remove that member and join with an empty directory and a " +
        "new number",
    });
    await expect(clock.complete(format())).rejects.toMatchObject({
      code: "RAFT_DIR_NOT_EMPTY",
      message: `${dir} holds Raft data already (${name}): open it instead, or choose an empty directory`,
    });
  }
});

test("a foreign, wiped, newer or damaged directory is refused in a sentence that says what to do", async () => {
  const { clock, disk, format, read } = machine(5);
  const said = async (expected = {}): Promise<string> => {
    const error = await clock.complete(read(expected).catch((cause: Error) => cause));
    return (error as Error).message;
  };
  expect(await said()).toBe(
    `${dir} holds no Raft identity: form a cluster or join one with it, as a new node. If a member ` +
      "lived here, its disk was wiped: remove that member and join under a new number",
  );
  await clock.complete(format());
  for (const [what, found] of [
    ["cluster", ids.clusterId],
    ["site", ids.siteId],
  ] as const) {
    const wanted = "ff".repeat(16);
    expect(await said({ [`${what}Id`]: wanted })).toBe(
      `${dir} belongs to ${what} ${found}, and this node is of ${what} ${wanted}: give the node its ` +
        "own directory, or correct the ids that it is started with",
    );
  }
  const path = `${dir}/identity`;
  for (const copy of ["a", "b"]) disk.garble(`${path}.${copy}`, 20, 8);
  expect(await said()).toBe(
    `${path} is damaged in both copies: remove this member from its groups, and join with an empty ` +
      "directory and a new number",
  );
  await clock.complete(writeTwin(disk, path, { magic: "FLAGRIDY", version: 2 }, Buffer.alloc(48)));
  expect(await said()).toBe(
    `${path} has format 2, and this release reads up to 1: start the release that wrote this ` +
      "directory, or a later one",
  );
});
