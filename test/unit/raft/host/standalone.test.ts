import { cpSync, mkdirSync, rmSync, writeFileSync } from "node:fs";
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
    await expect(startRaftNode(options)).rejects.toMatchObject({
      code: "RAFT_DIR_LOCKED",
      message:
        `${options.dir} is in use by another process: stop that one, or give this one a directory of ` +
        "its own",
    });
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

test("a node that lost its disk but for the log or the lock is told, and none of it formatted over", () =>
  withTemporaryFolder(async (folder) => {
    const dir = join(folder, "n");
    await (await startRaftNode(alone(dir))).close();
    rmSync(join(dir, "raft"), { recursive: true });
    await expect(startRaftNode(alone(dir))).rejects.toMatchObject({
      code: "RAFT_DIR_WIPED",
      message:
        `${dir}/raft has lost the identity of the member that it belongs to, and still holds ` +
        `${dir}/log: bring the whole disk back, or remove that member and join with an empty ` +
        "directory and a new number",
    });
    // Without the log it is an empty disk, which is another one to all who knew it.
    rmSync(join(dir, "log"), { recursive: true });
    await (await startRaftNode(alone(dir))).close();
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
    // Both sides say so, and what to do.
    const refusal =
      /an older copy of a disk .*: remove that member, and join with an empty directory/;
    const isRefused = (): boolean =>
      ["raft.peer_refused", "raft.peer_away"].every((event) =>
        said.some((line) => line.startsWith(event) && refusal.test(line)),
      );
    await vi.waitUntil(isRefused, { timeout: 30_000, interval: 50 });
    await restored.close();
    await one.close();
  }));
