// An export over the sudden end of its node: what was noted goes on, nothing is torn, missing or twice.

import { readFile, stat } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import {
  connect,
  leaveSessions,
  type Operated,
  startOperated,
} from "../support/operated-broker.ts";
import { withTemporaryFolder } from "../support/temporary-folder.ts";

const count = 6000;
const payloadBytes = 6 * 1024;
const killsWanted = 2;

async function fill({ broker }: Operated): Promise<void> {
  await leaveSessions(broker.port, ["archive"], ["plant/#"]);
  const client = await connect(broker.port, "machine");
  for (let at = 0; at < count; at += 500) {
    const some = Array.from({ length: 500 }, (_, index) => {
      const number = String(at + index);
      return client.publishAsync(`plant/${(at + index) % 7}`, number.padStart(payloadBytes), {
        qos: 1,
      });
    });
    await Promise.all(some);
  }
  await client.endAsync();
}

type Noted = { readonly position?: { readonly bytes: number; readonly messages: number } };

/** What a start would go on from. */
async function notedIn({ dataDir }: Operated, task: string) {
  const text = await readFile(join(dataDir, "admin", "tasks.json"), "utf8");
  const { tasks } = JSON.parse(text) as { tasks: Array<Noted & { id: string }> };
  return tasks.find(({ id }) => id === task)?.position;
}

test(
  "an export whose node is killed again and again goes on, and holds each message once",
  () =>
    withTemporaryFolder(async (folder) => {
      let at = await startOperated({ folder });
      try {
        await fill(at);
        const { id } = await at.admin.startTask({ body: { kind: "export", filter: "plant/#" } });
        const path = join(at.dataDir, "admin", "exports", `${id}.ndjson`);
        const file = () => stat(path).then(({ ino, birthtimeMs }) => ({ ino, birthtimeMs }));
        let first: Awaited<ReturnType<typeof file>> | undefined;
        let reached = 0;
        for (let kill = 0; kill < killsWanted; kill++) {
          // Somewhere behind a note that is further than the last.
          await expect
            .poll(async () => (await notedIn(at, id))?.messages ?? 0, {
              timeout: 60_000,
              interval: 2,
            })
            .toBeGreaterThan(reached);
          await at.broker.kill();
          reached = (await notedIn(at, id))?.messages ?? 0;
          expect(reached, "the kill came before the end").toBeLessThan(count);
          first ??= await file();
          at = await startOperated({ folder, key: at.key });
          const again = await at.admin.getTask({ params: { task: id } });
          expect(["running", "done"]).toContain(again.state);
        }
        const stateOf = async () => (await at.admin.getTask({ params: { task: id } })).state;
        await expect.poll(stateOf, { timeout: 60_000 }).toBe("done");
        // One that was begun anew would be another file.
        expect(await file()).toEqual(first);
        const out = join(folder, "out.ndjson");
        const fetched = await at.run(["export", "--task", id, "--out", out]);
        expect(fetched.stdout + fetched.stderr).toContain("6,000 messages");
        const lines = (await readFile(out, "utf8")).split("\n");
        expect(lines.pop()).toBe("");
        const parsed = lines.map((line) => JSON.parse(line) as { payload: string; timeUs: number });
        const times = parsed.map(({ timeUs }) => timeUs);
        expect(times).toEqual([...times].sort((a, b) => a - b));
        const numbers = parsed.map(({ payload }) => Number(payload)).sort((a, b) => a - b);
        expect(numbers).toEqual(Array.from({ length: count }, (_, index) => index));
        await expect(stat(path)).rejects.toThrow("ENOENT");
      } finally {
        await at.broker.kill();
      }
    }),
  180_000,
);
