import { expect, test } from "vitest";
import { append, appendRequest } from "../../support/store-calls.ts";
import { StoreMachine } from "../../support/store-machine.ts";

test("what a start replayed is checkpointed soon after it, and not replayed again", async () => {
  const m = new StoreMachine({ seed: 11 });
  let process = await m.boot();
  process.store.interest.add("#", new Map());
  await m.clock.complete(append(process.store, appendRequest("a/b", "v")));
  m.kill();
  process = await m.boot();
  expect(m.phases.get("checkpoint.released") ?? 0).toBe(0);
  await m.clock.advance(3_000);
  expect(m.phases.get("checkpoint.released")).toBeGreaterThan(0);
});

test("a process that keeps being killed does not keep ever more log", async () => {
  const m = new StoreMachine({ seed: 12 });
  const logFiles: number[] = [];
  for (let life = 0; life < 12; life++) {
    const process = await m.boot();
    process.store.interest.add("#", new Map());
    for (let n = 0; n < 20; n++) {
      await m.clock.complete(append(process.store, appendRequest("a/b", `v${n}`)));
    }
    await m.clock.advance(3_000);
    logFiles.push((await m.clock.complete(m.disk.attach().list("data/log"))).length);
    m.kill();
  }
  expect(Math.max(...logFiles)).toBeLessThan(8);
});
