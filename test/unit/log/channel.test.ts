import { subscribe, unsubscribe } from "node:diagnostics_channel";
import { expect, test } from "vitest";
import { type LogEvent, logChannelName } from "../../../src/log/index.ts";
import { LogHarness, makeRecord, recordsOf } from "../../support/log-harness.ts";

test("who subscribes to the log's channel is told each flush once it is synced, and its end", async () => {
  const seen: LogEvent[] = [];
  const take = (message: unknown): void => void seen.push(message as LogEvent);
  const harness = new LogHarness();
  const log = await harness.open();
  await harness.appendAll(log, [makeRecord(1, 1)]);
  subscribe(logChannelName, take);
  try {
    harness.disk.inject({ on: "fdatasync", path: "00000001", delayMs: 50 });
    const appended = harness.appendAll(log, recordsOf(1, 2, 6));
    await harness.clock.advance(0.5);
    expect(seen).toEqual([]);
    await appended;
    expect(seen[0]).toMatchObject({ event: "flush", records: 5 });
    expect(seen[0]).toHaveProperty("sizeBytes", expect.any(Number));
    expect((seen[0] as { syncMs: number }).syncMs).toBeGreaterThanOrEqual(50);
    harness.disk.inject({ on: "fdatasync", path: "00000001", fails: "EIO" });
    await expect(harness.appendAll(log, [makeRecord(1, 7)])).rejects.toThrow();
    expect(seen.at(-1)).toMatchObject({ event: "failed", reason: expect.stringContaining("EIO") });
  } finally {
    unsubscribe(logChannelName, take);
  }
  await harness.close(log);
});
