// Shows the kill rounds and the image rounds on a toy broker: they pass a sound one and find the
// faults that are planted in it.

import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";
import { startBroker } from "../support/broker-process.ts";
import { RawClient } from "../support/raw-client.ts";
import { syncsBetween, traceProcess } from "../support/strace.ts";
import { withTemporaryFolder } from "../support/temporary-folder.ts";
import { checkImages, recordRun } from "./image-rounds.ts";
import { runKillRounds } from "./kill-rounds.ts";
import { createRecording } from "./recorder.ts";

const main = fileURLToPath(new URL("../support/toy-broker.mjs", import.meta.url));

/** Nobody waits this long for a sound broker unless the machine is busy. */
const soundWithinMs = 30_000;

const killRounds = (scratch: string, fault: string, rounds: number) =>
  runKillRounds({
    start: (port) =>
      startBroker({ main, dataDir: join(scratch, "data"), port, env: { TOY_FAULT: fault } }),
    rounds,
    ackedPerRound: 300,
    seed: 7,
    stillMs: fault === "" ? soundWithinMs : 3000,
  });

async function imageFailures(scratch: string, fault: string, count: number): Promise<string[]> {
  const dataDir = join(scratch, "data");
  mkdirSync(dataDir);
  const start = (env: Readonly<Record<string, string>>) =>
    startBroker({ main, dataDir, env: { ...env, TOY_FAULT: fault } });
  const syncs = fault === "no-sync" ? "ignored" : "obeyed";
  const recording = createRecording(dataDir, scratch, syncs);
  const run = await recordRun({ recording, start, seed: 1, acked: 300 });
  return await checkImages({
    run,
    count,
    seed: 3,
    scratch,
    namesModel: () => "strict",
    start: (folder) => startBroker({ main, dataDir: folder }),
    stillMs: fault === "" ? soundWithinMs : 1500,
    // Not every cut falls where the fault shows. The first image that does is enough.
    ...(fault !== "" && { failuresMax: 1 }),
  });
}

describe("kill rounds", () => {
  test("pass a sound broker", async () => {
    await withTemporaryFolder(async (scratch) => {
      const report = await killRounds(scratch, "", 4);
      expect(report.kills).toBe(4);
      expect(report.acked).toBeGreaterThanOrEqual(1200);
      expect(report.faults).toEqual([]);
    });
  });

  test.each([
    // Where no message was under way at the kill, what had been sent is sent again without DUP.
    ["ack-unwritten", /acked messages not delivered|(loss|duplicate): [1-9]/],
    ["no-dup", /duplicate: [1-9]/],
    ["twice", /duplicate: [1-9]/],
  ])("find a broker with the fault %s", async (fault, said) => {
    await withTemporaryFolder(async (scratch) => {
      await expect(killRounds(scratch, fault, 8)).rejects.toThrow(said);
    });
  });
});

describe("image rounds", () => {
  test("pass a sound broker", async () => {
    await withTemporaryFolder(async (scratch) => {
      expect(await imageFailures(scratch, "", 15)).toEqual([]);
    });
  });

  test.each(["ack-early", "no-sync"])("find a broker with the fault %s", async (fault) => {
    await withTemporaryFolder(async (scratch) => {
      const failures = await imageFailures(scratch, fault, 40);
      expect(failures.length).toBeGreaterThan(0);
      expect(failures.join("\n")).toMatch(/loss: [1-9]|session is gone/);
    });
  });
});

describe("a trace of system calls", () => {
  /** Whole syncs between the PUBLISH of an idle client and its PUBACK. */
  async function syncsOfOnePublish(dataDir: string, fault: string): Promise<number | undefined> {
    await using broker = await startBroker({ main, dataDir, env: { TOY_FAULT: fault } });
    await using client = await RawClient.open(broker.port, 4);
    await client.connect();
    const trace = await traceProcess(broker.pid);
    client.send("32 06 0001 61 0007 78");
    await client.expectBytes("40 02 0007");
    const calls = await trace.stop();
    return syncsBetween(calls, Buffer.from("320600016100", "hex"), Buffer.from("40020007", "hex"));
  }

  test("shows a sync before the ack of a sound broker", async () => {
    await withTemporaryFolder(async (scratch) => {
      expect(await syncsOfOnePublish(scratch, "")).toBeGreaterThanOrEqual(1);
    });
  });

  test("shows none where the ack does not wait", async () => {
    await withTemporaryFolder(async (scratch) => {
      expect(await syncsOfOnePublish(scratch, "ack-unwritten")).toBe(0);
    });
  });
});
