// A Raft node whose first start is cut off, by kill -9 or by a power cut behind any of its writes,
// starts again by itself and holds what it acknowledged.

import { execFile } from "node:child_process";
import { mkdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { expect, test } from "vitest";
import { SeededRandom } from "../../src/base/index.ts";
import { defaultLogSettings, startRaftNode } from "../../src/raft/index.ts";
import { isLong } from "../support/amount.ts";
import { ListMachine } from "../support/raft-cluster.ts";
import { withTemporaryFolder } from "../support/temporary-folder.ts";
import { createHistory } from "./history.ts";
import { buildImage, type NamesModel, type PowerCut, writeImage } from "./image-builder.ts";
import { formatPowerCut } from "./images.ts";
import { changesDisk, marksBefore, readRecord } from "./record-reader.ts";
import { createRecording } from "./recorder.ts";

const entries = 6;
const program = fileURLToPath(new URL("programs/raft-start.mjs", import.meta.url));

/** The lock is a LevelDB; all else is ours. */
const namesModel = (folder: string): NamesModel => (folder === "node/lock" ? "ordered" : "strict");

/** What of the entries the node holds, once it leads both groups. */
async function startAgain(dir: string): Promise<string[]> {
  const machines = new Map<number, ListMachine>();
  const node = await startRaftNode({
    dir,
    clusterId: "ab".repeat(16),
    node: 1,
    members: [
      { node: 1, siteId: "01".repeat(16), name: "one", address: { path: `${dir}.socket` } },
    ],
    groups: [1, 2],
    machineOf: (group) => {
      const machine = new ListMachine();
      machines.set(group, machine);
      return machine;
    },
    logSettings: { ...defaultLogSettings, segmentBytes: 64 * 1024, flushBytesMax: 16 * 1024 },
  });
  try {
    for (const group of [node.group(1), node.group(2)]) {
      group.campaign();
      while (group.role !== "leader") await new Promise((done) => setImmediate(done));
      await group.propose([{ version: 1, data: Buffer.from("after") }]);
    }
    return [...machines.values()].flatMap(({ texts }) => texts);
  } finally {
    await node.close();
  }
}

test("a first start that is cut off anywhere goes on by itself, with all that was acknowledged", () =>
  withTemporaryFolder(async (scratch) => {
    const root = join(scratch, "data");
    mkdirSync(root);
    const recording = createRecording(root, scratch);
    const { stdout } = await promisify(execFile)(
      process.execPath,
      [program, root, recording.marksPath, `${entries}`, join(scratch, "socket")],
      { env: { ...process.env, ...recording.env } },
    );
    expect(stdout).toBe("done\n");
    const operations = readRecord(recording.recordPath);
    const history = createHistory(operations, root);
    const random = new SeededRandom(process.env.FLAGSTONE_SEED ?? "1");
    let images = 0;
    for (const [cut, operation] of operations.entries()) {
      if (!changesDisk(operation) && operation.kind !== "syncEnd") continue;
      const drawn = random.pick(["none", "prefix", "any"] as const);
      const kinds = isLong
        ? (["all", "none", "prefix", "any"] as const)
        : (["all", drawn] as const);
      for (const bytes of kinds) {
        const lostSectors = random.pick(["zeros", "noise"] as const);
        const own = random.split(`${cut} ${bytes}`);
        const powerCut: PowerCut = { cut, bytes, namesModel, lostSectors, random: own };
        const folder = join(scratch, "image");
        writeImage(buildImage(history, powerCut), folder);
        const said = formatPowerCut(powerCut, operations);
        const held = await startAgain(join(folder, "node")).catch((error: Error) => {
          throw new Error(`${said}: ${error.message}`, { cause: error });
        });
        const acked = marksBefore(operations, cut).map((mark) => `entry ${mark}`);
        expect(
          acked.filter((text) => !held.includes(text)),
          said,
        ).toEqual([]);
        rmSync(folder, { recursive: true });
        images++;
      }
    }
    console.log(`${images} images of a first start of ${operations.length} operations`);
    expect(images).toBeGreaterThan(100);
  }));
