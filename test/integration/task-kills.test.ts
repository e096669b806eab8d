// Verifying, compacting, packing anew and dropping over the sudden end of their node: what was noted goes on, no
// shard is visited again, and every message is there. An export has a test of its own.

import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { expect, test } from "vitest";
import {
  connect,
  leaveSessions,
  type Operated,
  startOperated,
} from "../support/operated-broker.ts";
import { withTemporaryFolder } from "../support/temporary-folder.ts";

const shards = 32;
const count = 640;
const ofPublisher = 20;
const args = ["--set", `databases.messages.shards=${shards}`];
const database = "messages";
const triesMax = 20;

type Kind = "verify" | "compact" | "repack";
type Noted = {
  readonly id: string;
  readonly state: string;
  readonly shardsLeft: unknown[];
  readonly report?: { generations?: number };
};

/** A sealed generation in each shard. Every other message is soon expired, for which a slab is packed. */
async function fill(at: Operated): Promise<void> {
  const { broker } = at;
  await leaveSessions(broker.port, ["archive"], ["plant/#"]);
  const properties = { messageExpiryInterval: 1 };
  // Messages lie in the shard of their publisher.
  for (let from = 0; from < count; from += ofPublisher) {
    const client = await connect(broker.port, `machine-${from}`);
    const some = Array.from({ length: ofPublisher }, (_, index) => {
      const number = from + index;
      const ends = number % 2 === 1 ? { properties } : {};
      return client.publishAsync(`plant/${number}`, `${number}`, { qos: 1, ...ends });
    });
    await Promise.all(some);
    await client.endAsync();
  }
  // The second checkpoint keeps that the first one has sealed them.
  for (const times of [1, 2]) {
    process.kill(broker.pid, "SIGUSR2");
    const rotated = () => broker.stderr().split("node.test_rotated").length - 1;
    await expect.poll(rotated, { timeout: 60_000 }).toBe(times);
  }
  await sleep(1100);
}

/** What a start would go on from. */
async function notedIn({ dataDir }: Operated, task: string): Promise<Noted> {
  const text = await readFile(join(dataDir, "admin", "tasks.json"), "utf8");
  const { tasks } = JSON.parse(text) as { tasks: Noted[] };
  return tasks.find(({ id }) => id === task) as Noted;
}

const isMiddle = ({ state, shardsLeft }: Noted): boolean =>
  state === "running" && shardsLeft.length > 0 && shardsLeft.length < shards;

async function begun({ admin }: Operated, kind: Kind): Promise<string> {
  return (await admin.startTask({ body: { kind, database } })).id;
}

async function ended({ admin }: Operated, id: string) {
  const task = () => admin.getTask({ params: { task: id } });
  const stateOf = async () => (await task()).state;
  await expect.poll(stateOf, { timeout: 60_000, interval: 20 }).toBe("done");
  return await task();
}

/** Of what does not expire. */
async function lastingIn({ run }: Operated): Promise<number[]> {
  const history = await run(["history", "plant/#", "--all", "--payload", "-o", "json"]);
  const { items } = JSON.parse(history.stdout) as { items: Array<{ payload: string }> };
  const numbers = items.map(({ payload }) => Number(payload)).filter((one) => one % 2 === 0);
  return numbers.sort((a, b) => a - b);
}

const lasting = Array.from({ length: count / 2 }, (_, index) => 2 * index);
const signals = { FLAGSTONE_TEST_SIGNALS: "1" };

test("verify and compact whose node is killed go on behind the shards that are done", () =>
  withTemporaryFolder(async (folder) => {
    let at = await startOperated({ folder, args, env: signals });
    try {
      await fill(at);
      await at.broker.stop();
      at = await startOperated({ folder, args, key: at.key });
      for (const kind of ["verify", "compact"] as const) {
        const { report: whole } = await ended(at, await begun(at, kind));
        let isKilled = false;
        for (let turn = 0; turn < triesMax && !isKilled; turn++) {
          const id = await begun(at, kind);
          const left = async () => (await notedIn(at, id)).shardsLeft.length;
          await expect.poll(left, { timeout: 60_000, interval: 1 }).toBeLessThan(shards);
          await at.broker.kill();
          // One that was over before it was seen on its way is begun again.
          isKilled = isMiddle(await notedIn(at, id));
          at = await startOperated({ folder, args, key: at.key });
          const done = await ended(at, id);
          expect(done).toMatchObject({ done: shards, total: shards });
          // A shard that was left out, or visited and counted twice, would show here.
          expect(done.report?.slabs).toBe(whole?.slabs);
          if (kind === "verify") expect(done.report).toMatchObject({ ttvs: count, findings: [] });
        }
        expect(isKilled, `a ${kind} was killed on its way`).toBe(true);
      }
      expect(await lastingIn(at)).toEqual(lasting);
    } finally {
      await at.broker.kill();
    }
  }));

test("a repack whose node is killed within a slab goes on with it and loses no message", () =>
  withTemporaryFolder(async (folder) => {
    let at = await startOperated({ folder, args, env: signals });
    try {
      await fill(at);
      await at.broker.stop();
      const env = { FLAGSTONE_TEST_KILL: "repack.begun:9" };
      at = await startOperated({ folder, args, env, key: at.key });
      const id = await begun(at, "repack");
      expect((await at.broker.exited).signal).toBe("SIGKILL");
      const noted = await notedIn(at, id);
      expect(isMiddle(noted), JSON.stringify(noted)).toBe(true);
      at = await startOperated({ folder, args, key: at.key });
      const { report, ...done } = await ended(at, id);
      expect(done).toMatchObject({ done: shards, total: shards });
      expect(Number(report?.packed)).toBeGreaterThan(8);
      expect(Number(report?.ttvsExpired)).toBeGreaterThan(0);
      const { report: found } = await ended(at, await begun(at, "verify"));
      expect(found).toMatchObject({ findings: [] });
      expect(await lastingIn(at)).toEqual(lasting);
    } finally {
      await at.broker.kill();
    }
  }));

test("a drop whose node is killed goes on until no message is left", () =>
  withTemporaryFolder(async (folder) => {
    let at = await startOperated({ folder, args, env: signals });
    try {
      await fill(at);
      const body = { kind: "drop", database, untilUs: Date.now() * 1000, force: true } as const;
      const { id } = await at.admin.startTask({ body });
      const dropped = async () => Number((await notedIn(at, id)).report?.generations ?? 0);
      await expect.poll(dropped, { timeout: 60_000, interval: 1 }).toBeGreaterThan(0);
      await at.broker.kill();
      expect((await notedIn(at, id)).state).toBe("running");
      at = await startOperated({ folder, args, key: at.key });
      await ended(at, id);
      expect(await lastingIn(at)).toEqual([]);
    } finally {
      await at.broker.kill();
    }
  }));
