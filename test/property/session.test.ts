// Random conversations with durable sessions, their disconnects, crashes and restarts, watched by
// the model of what a client may rely on.

import fc from "fast-check";
import { expect, test } from "vitest";
import { amount } from "../support/amount.ts";
import { type Operation, SessionRun, sessionClients } from "../support/session-run.ts";
import { World } from "../support/session-world.ts";

const client = fc.nat(sessionClients - 1);

const operation: fc.Arbitrary<Operation> = fc.oneof(
  {
    weight: 10,
    arbitrary: fc.record({
      kind: fc.constant("publish" as const),
      publisher: fc.nat(2),
      topic: fc.nat(1),
      qos: fc.constantFrom(1 as const, 2 as const),
    }),
  },
  {
    weight: 5,
    arbitrary: fc.record({
      kind: fc.constant("advance" as const),
      ms: fc.constantFrom(0, 0.5, 1, 2, 5, 60, 3000),
    }),
  },
  {
    weight: 3,
    arbitrary: fc.record({
      kind: fc.constant("connect" as const),
      client,
      receiveMaximum: fc.constantFrom(1, 2, 5, 100),
    }),
  },
  {
    weight: 3,
    arbitrary: fc.record({
      kind: fc.constantFrom("drop" as const, "disconnect" as const, "toggle" as const),
      client,
    }),
  },
  { weight: 5, arbitrary: fc.record({ kind: fc.constant("answerAll" as const), client }) },
  {
    weight: 6,
    arbitrary: fc.record({ kind: fc.constant("answer" as const), client, index: fc.nat(10) }),
  },
  {
    weight: 1,
    arbitrary: fc.record({
      kind: fc.constant("room" as const),
      client,
      packets: fc.constantFrom(0, 1, 3, 1000),
    }),
  },
  {
    weight: 2,
    arbitrary: fc.record({ kind: fc.constant("crash" as const), flushed: fc.nat(3) }),
  },
  {
    weight: 1,
    arbitrary: fc.record({
      kind: fc.constant("failWrites" as const),
      ms: fc.constantFrom(1, 20, 400),
    }),
  },
  { weight: 1, arbitrary: fc.constant({ kind: "restart" as const }) },
);

test("nothing is lost, QoS 2 comes once, order, DUP and ids keep their rules", async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.array(operation, { minLength: 5, maxLength: 80, size: "max" }),
      fc.record({
        wake: fc.constantFrom("now" as const, "soon" as const),
        commitMs: fc.constantFrom(0.5, 3),
        logShards: fc.constantFrom(1, 2),
        stateShards: fc.constantFrom(1, 2),
      }),
      async (operations, store) => {
        const settings = { inflightMax: 20, checkpointDelayMs: 10 };
        const run = new SessionRun(await World.start({ store, settings }));
        await run.begin();
        for (const operation of operations) await run.apply(operation);
        await run.finish();
        expect(run.faults()).toEqual([]);
      },
    ),
    { numRuns: Number(process.env.SESSION_RUNS ?? amount(60, 150)) },
  );
}, 120_000);
