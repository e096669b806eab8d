import { expect, test } from "vitest";
import { SeededRandom, SimClock, SimDisk, silentLogger } from "../../../src/base/index.ts";
import { logErrors } from "../../../src/log/errors.ts";
import type { WriteAheadLog } from "../../../src/log/index.ts";
import { Backlogs } from "../../../src/store/backlogs.ts";
import { LocalLog, LogSender } from "../../../src/store/shard-log.ts";

/** A log that takes so many records at once. */
function createFakeLog(room: number) {
  const taken: Array<{ shard: number; index: number; done: (error: Error | undefined) => void }> =
    [];
  const fake = {
    taken,
    failure: undefined as Error | undefined,
    payloadBytesMax: 1_000,
    gapsOf: () => [],
    append(record: { shard: number; index: number }, done: (error: Error | undefined) => void) {
      if (fake.failure !== undefined) throw fake.failure;
      if (taken.length >= room)
        throw logErrors.pendingFull({ pendingBytes: 1, pendingBytesMax: 1 });
      taken.push({ shard: record.shard, index: record.index, done });
    },
    commit() {
      for (const { done } of taken.splice(0)) done(undefined);
    },
  };
  return fake;
}

type SharedLog = { readonly clock: SimClock; readonly sender: LogSender };

function localLog(fake: ReturnType<typeof createFakeLog>, shard = 1, shared?: SharedLog) {
  const clock = shared?.clock ?? new SimClock();
  const sender = shared?.sender ?? new LogSender(clock);
  const log = fake as unknown as WriteAheadLog;
  const disk = new SimDisk({ clock, random: new SeededRandom(1) });
  const logger = silentLogger;
  const backlogs = new Backlogs({ dir: "shard", quarantineDir: "quarantine", disk, logger });
  const local = new LocalLog(shard, { log, sender, backlogs, logger, epoch: () => 1 });
  const committed: number[] = [];
  const failures: Error[] = [];
  local.start(1, {
    onCommitted: ({ index }) => committed.push(index),
    onFailed: (error) => failures.push(error),
  });
  return { clock, sender, local, committed, failures };
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

test("an entry of one shard never gets ahead of an earlier one of another that waits", async () => {
  const fake = createFakeLog(1);
  const first = localLog(fake, 1);
  const second = localLog(fake, 2, first);
  const order: number[] = [];
  for (const { local } of [first, first, second, first, second]) {
    local.propose(1, 1, Buffer.from("x"));
  }
  for (let round = 0; round < 6; round++) {
    order.push(...fake.taken.map(({ shard }) => shard));
    fake.commit();
    await first.clock.advance(5);
  }
  expect(order).toEqual([1, 1, 2, 1, 2]);
  expect([first.committed, second.committed]).toEqual([
    [1, 2, 3],
    [1, 2],
  ]);
});
