import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { type RaftNodeOptions, startRaftNode } from "../../../../src/raft/index.ts";
import { ListMachine } from "../../../support/raft-cluster.ts";
import { withTemporaryFolder } from "../../../support/temporary-folder.ts";

const alone = (dir: string): RaftNodeOptions => ({
  dir,
  clusterId: "ab".repeat(16),
  node: 1,
  members: [{ node: 1, siteId: "01".repeat(16), name: "one", address: { path: `${dir}.socket` } }],
  groups: [1],
  machineOf: () => new ListMachine(),
});

test("one process holds the directory of a node, and gives it back with its end", () =>
  withTemporaryFolder(async (folder) => {
    const options = alone(join(folder, "n"));
    const first = await startRaftNode(options);
    await expect(startRaftNode(options)).rejects.toMatchObject({ code: "RAFT_DIR_LOCKED" });
    await first.close();
    const second = await startRaftNode(options);
    await second.close();
  }));

test("a damaged lock keeps no node from starting", () =>
  withTemporaryFolder(async (folder) => {
    const dir = join(folder, "n");
    mkdirSync(join(dir, "lock"), { recursive: true });
    writeFileSync(join(dir, "lock", "CURRENT"), "rot");
    const node = await startRaftNode(alone(dir));
    await node.close();
  }));
