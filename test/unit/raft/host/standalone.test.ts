import { cpSync, mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test, vi } from "vitest";
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

test("a directory that was restored from a copy is refused by a member that heard of it since", () =>
  withTemporaryFolder(async (folder) => {
    const members = [1, 2].map((node) => ({
      node,
      siteId: String(node).padStart(32, "0"),
      name: `node${node}`,
      address: { path: join(folder, `socket${node}`) },
    }));
    const said: string[] = [];
    const note = (event: string, fields: unknown): void => {
      said.push(`${event} ${JSON.stringify(fields)}`);
    };
    const logger = { debug: note, info: note, warn: note, error: note };
    const optionsOf = (node: number, dir: string): RaftNodeOptions => {
      return { ...alone(dir), node, members, logger };
    };
    const [dir, copy] = [join(folder, "n2"), join(folder, "copy")];
    const starting = startRaftNode(optionsOf(1, join(folder, "n1")));
    await (await startRaftNode(optionsOf(2, dir))).close();
    const one = await starting;
    cpSync(dir, copy, { recursive: true });
    const again = await startRaftNode(optionsOf(2, dir));
    const isDone = (): boolean => again.group(1).status().leader !== 0;
    await vi.waitUntil(isDone, { timeout: 30_000, interval: 50 });
    await again.close();
    const restored = await startRaftNode(optionsOf(2, copy));
    const isRefused = (): boolean => said.some((line) => line.includes("an older copy of a disk"));
    await vi.waitUntil(isRefused, { timeout: 30_000, interval: 50 });
    await restored.close();
    await one.close();
  }));
