// Durable sessions on the real store on a simulated machine: random conversations with power cuts
// and kills at any moment, watched by the model of what a client may rely on.

import { expect, test } from "vitest";
import { SeededRandom } from "../../src/base/index.ts";
import { drawOperation, type Operation, SessionRun } from "../support/session-run.ts";
import { World } from "../support/session-world.ts";

const seeds = Number(process.env.SESSION_SEEDS ?? 100);
const first = Number(process.env.SESSION_SEED ?? 1);
const operationCount = Number(process.env.SESSION_OPERATIONS ?? 150);

test(`sessions keep their promises over ${seeds} seeds of kills and power cuts`, async () => {
  for (let seed = first; seed < first + seeds; seed++) {
    const random = new SeededRandom(`session ${seed}`);
    const settings = { inflightMax: 20, checkpointDelayMs: 10 };
    const run = new SessionRun(await World.start({ machineSeed: seed, settings }));
    await run.begin();
    const done: Operation[] = [];
    for (let n = 0; n < operationCount; n++) {
      const operation = drawOperation(random);
      done.push(operation);
      await run.apply(operation);
    }
    await run.finish();
    const repeat = `SESSION_SEED=${seed} SESSION_SEEDS=1 npx vitest run --project sim test/sim/session.test.ts`;
    expect(run.faults(), `${JSON.stringify(done.slice(-30))}\n${repeat}`).toEqual([]);
  }
}, 600_000);
