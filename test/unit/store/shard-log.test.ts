import { expect, test } from "vitest";
import { SimClock, silentLogger } from "../../../src/base/index.ts";
import { logErrors } from "../../../src/log/errors.ts";
import type { WriteAheadLog } from "../../../src/log/index.ts";
import { LocalLog } from "../../../src/store/shard-log.ts";

/** A log that takes so many records at once. */
function createFakeLog(room: number) {
  const taken: Array<{ index: number; done: (error: Error | undefined) => void }> = [];
  const fake = {
    taken,
    failure: undefined as Error | undefined,
    payloadBytesMax: 1_000,
    gapsOf: () => [],
    append(record: { index: number }, done: (error: Error | undefined) => void) {
      if (fake.failure !== undefined) throw fake.failure;
      if (taken.length >= room)
        throw logErrors.pendingFull({ pendingBytes: 1, pendingBytesMax: 1 });
      taken.push({ index: record.index, done });
    },
    commit() {
      for (const { done } of taken.splice(0)) done(undefined);
    },
  };
  return fake;
}

function localLog(fake: ReturnType<typeof createFakeLog>) {
  const clock = new SimClock();
  const log = fake as unknown as WriteAheadLog;
  const local = new LocalLog(1, { log, clock, logger: silentLogger, epoch: () => 1 });
  const committed: number[] = [];
  const failures: Error[] = [];
  local.start(1, {
    onCommitted: ({ index }) => committed.push(index),
    onFailed: (error) => failures.push(error),
  });
  return { clock, local, committed, failures };
}

test("entries that meet a full queue wait and keep their order", async () => {
  const fake = createFakeLog(2);
  const { clock, local, committed } = localLog(fake);
  for (let n = 0; n < 5; n++) local.propose(1, 1, Buffer.from("x"));
  expect(local.lastIndex).toBe(5);
  for (let round = 0; round < 3; round++) {
    fake.commit();
    await clock.advance(5);
  }
  fake.commit();
  expect(committed).toEqual([1, 2, 3, 4, 5]);
});

test("a log that has failed says so within the proposal, once", () => {
  const fake = createFakeLog(10);
  const { local, failures } = localLog(fake);
  local.propose(1, 1, Buffer.from("x"));
  fake.failure = logErrors.failed({ path: "log", reason: "EIO" });
  local.propose(1, 1, Buffer.from("x"));
  local.propose(1, 1, Buffer.from("x"));
  for (const { done } of fake.taken) done(fake.failure);
  expect(failures).toHaveLength(1);
});
