// Fuzzing of the whole broker, from one seed a case (docs/testing.md).
//   FLAGSTONE_FUZZ_BROKER_CASES=100000 npx vitest run --project property broker-fuzz
// A failure prints its seed: FLAGSTONE_FUZZ_SEED=17 repeats that case alone.

import { expect, test } from "vitest";
import { amount } from "../support/amount.ts";
import { type BrokerFuzzCounts, runBrokerCase } from "../support/fuzz-broker.ts";

const cases = Number(process.env.FLAGSTONE_FUZZ_BROKER_CASES ?? amount(30, 300, 20_000));
const only = process.env.FLAGSTONE_FUZZ_SEED;

test("a broker serves its honest clients whatever the others say, and forgets those that go", {
  timeout: 120_000 + cases * 200,
}, async () => {
  const counts: BrokerFuzzCounts = {};
  const first = Number(only ?? process.env.FLAGSTONE_FUZZ_FROM ?? 1);
  const last = only === undefined ? first + cases - 1 : first;
  for (let seed = first; seed <= last; seed++) {
    await runBrokerCase(seed, counts).catch((error: unknown) => {
      const repeat = `FLAGSTONE_FUZZ_SEED=${seed} npx vitest run --project property broker-fuzz`;
      throw new Error(`seed ${seed}: ${String(error)}\nrepeat with: ${repeat}`, { cause: error });
    });
  }
  console.log(JSON.stringify(counts));
  if (only !== undefined) return;
  for (const kind of ["publish", "puback", "pubrec", "pubrel", "pubcomp", "suback", "unsuback"]) {
    expect(counts[`got ${kind}`] ?? 0, kind).toBeGreaterThan(0);
  }
  expect(counts.honest).toBeGreaterThan(cases / 2);
});
