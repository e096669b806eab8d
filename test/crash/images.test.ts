// Crash images of the launched broker: runs with ends and drops of generations, packing anew and
// checkpoints are recorded, and the broker is started, with the real LevelDB, on what power cuts at drawn moments would have
// left. Every second run is recorded from a recovery after kill -9 on. And once from outside, by
// strace: no ack without a sync.
//
// One run again: FLAGSTONE_SEED=images-2 npx vitest run --project crash test/crash/images.test.ts

import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { isLong } from "../support/amount.ts";
import { type BrokerProcess, startBroker } from "../support/broker-process.ts";
import { RawClient } from "../support/raw-client.ts";
import { syncsBetween, traceProcess } from "../support/strace.ts";
import { withTemporaryFolder } from "../support/temporary-folder.ts";
import type { NamesModel } from "./image-builder.ts";
import { checkImages, type RecordedRun, recordRun } from "./image-rounds.ts";
import { ImageUpkeep } from "./image-upkeep.ts";
import { createRecording } from "./recorder.ts";

const only = process.env.FLAGSTONE_SEED;
const runCount = isLong ? 6 : 2;
const imagesPerRun = isLong ? 50 : 25;
const seeds =
  only === undefined ? Array.from({ length: runCount }, (_, n) => `images-${n + 1}`) : [only];

const ackedPerRun = 1000;
/** A loaded machine is slow, not wrong; the budget of the suite is that of docs/testing.md. */
const runMsMax = 600_000;

// Small segments and young checkpoints: a short run goes through all that a long one does.
const args = [
  ...["--set", "log.segmentBytes=256KiB", "--set", "store.checkpointAge=1s"],
  ...["--admin-port", "0"],
];
const env = { FLAGSTONE_TEST_SIGNALS: "1" };

/** LevelDB's folders by name; every other folder holds our own files. */
const namesModel = (folder: string): NamesModel =>
  /(^|\/)(store|map|blocks|index|lock)$/.test(folder) ? "ordered" : "strict";

/** Ends the generation and takes checkpoints. */
const stir = (broker: BrokerProcess): void => {
  process.kill(broker.pid, "SIGUSR2");
};

/** Two more ends of generations for certain: signals that come fast are one, and a run may be short. */
const settle = async (broker: BrokerProcess): Promise<void> => {
  const countDone = (): number => broker.output().split("node.test_rotated").length;
  for (let n = 0; n < 2; n++) {
    const before = countDone();
    stir(broker);
    while (countDone() === before) await new Promise((resolve) => setTimeout(resolve, 20));
  }
};

function record(
  scratch: string,
  seed: string,
  syncs: "obeyed" | "ignored" = "obeyed",
): Promise<RecordedRun> {
  const dataDir = join(scratch, "data");
  mkdirSync(dataDir);
  const upkeep = new ImageUpkeep();
  const beginsWithRecovery = Number(/\d+$/.exec(seed)?.[0] ?? 0) % 2 === 0;
  const before = { acked: ackedPerRun, copyTo: join(scratch, "before") };
  return recordRun({
    recording: createRecording(dataDir, scratch, syncs),
    start: (recorded) => startBroker({ dataDir, args, env: { ...recorded, ...env } }),
    seed,
    acked: ackedPerRun,
    stir: (broker) => {
      stir(broker);
      upkeep.turn(broker);
    },
    settle: async (broker) => {
      await settle(broker);
      upkeep.turn(broker);
      await upkeep.done();
    },
    ...(beginsWithRecovery && { before }),
  });
}

/** Generations of the messages that were made while the record ran. */
function generationsOf(run: RecordedRun): number {
  const names = run.operations.map((operation) =>
    operation.kind === "mkdir" ? /\/(g\d{8})$/.exec(operation.path)?.[1] : undefined,
  );
  return new Set(names.filter((name) => name !== undefined)).size;
}

/** Folders of slabs that the record makes or takes away. */
function slabFolders(run: RecordedRun, kind: "mkdir" | "rmdir", pattern: RegExp): number {
  const names = run.operations.filter(
    (operation) => operation.kind === kind && pattern.test(operation.path),
  );
  return names.length;
}

test.each(seeds)(
  "nothing acked is missing after a power cut at any moment (seed %s)",
  async (seed) => {
    await withTemporaryFolder(async (scratch) => {
      const run = await record(scratch, seed);
      const failures = await checkImages({
        run,
        count: imagesPerRun,
        seed,
        scratch,
        namesModel,
        start: (dataDir) => startBroker({ dataDir, args, env }),
        stillMs: 20_000,
      });
      const { ackedCount } = run.oracle;
      const said = `${imagesPerRun} of a record of ${run.operations.length} operations`;
      console.info(`crash images, seed ${seed}: ${said}, ${ackedCount} acked`);
      const repeat = `FLAGSTONE_SEED=${seed} npx vitest run --project crash test/crash/images.test.ts`;
      expect(failures.join("\n\n"), `to repeat: ${repeat}`).toBe("");
      expect(generationsOf(run), "generations in the record").toBeGreaterThanOrEqual(2);
      const packed = slabFolders(run, "mkdir", /scratch\/.*\/g\d+p\d+$/);
      expect(packed, "generations packed anew in the record").toBeGreaterThanOrEqual(2);
      const dropped = slabFolders(run, "rmdir", /scratch\/.*\/g\d+p\d+$/);
      expect(dropped, "drops in the record").toBeGreaterThanOrEqual(1);
    });
  },
  runMsMax,
);

test(
  "a build that does not sync is found out",
  async () => {
    await withTemporaryFolder(async (scratch) => {
      const failures = await checkImages({
        run: await record(scratch, "images-1", "ignored"),
        count: 20,
        seed: "no-sync",
        scratch,
        namesModel,
        start: (dataDir) => startBroker({ dataDir, args, env }),
        stillMs: 1500,
        failuresMax: 8,
      });
      expect(failures.join("\n")).toMatch(/loss: [1-9]|session is gone/);
    });
  },
  runMsMax,
);

test("between the PUBLISH of an idle client and its PUBACK lies a sync", async () => {
  await withTemporaryFolder(async (dataDir) => {
    await using broker = await startBroker({ dataDir });
    await using subscriber = await RawClient.open(broker.port, 4);
    await subscriber.connect({ clientId: "durable", clean: false });
    subscriber.send("82 06 0001 0001 61 01");
    await subscriber.expect("suback");
    subscriber.send("e0 00");
    await subscriber.expectClosed();
    await using publisher = await RawClient.open(broker.port, 4);
    await publisher.connect();
    const trace = await traceProcess(broker.pid);
    publisher.send("32 06 0001 61 0007 78");
    await publisher.expectBytes("40 02 0007");
    const calls = await trace.stop();
    const publish = Buffer.from("320600016100", "hex");
    expect(syncsBetween(calls, publish, Buffer.from("40020007", "hex"))).toBeGreaterThanOrEqual(1);
  });
});
