// Anything at all as parameters, query and body of each operation of the HTTP API: what comes back is an
// answer or a coded refusal, never a fault of ours, and short.

import fc from "fast-check";
import { beforeAll, expect, test } from "vitest";
import { contract, operationNames, operations } from "../../src/admin/contract.ts";
import { type AdminWorld, adminWorld } from "../support/admin-world.ts";

let world: AdminWorld;

beforeAll(async () => {
  world = await adminWorld({ requestsMax: 1000 });
  const { operator, store } = world.node.parts;
  world.tasks.begin({ operator, messages: store });
});

/** Names that the contract knows, so that values get past the first check. */
const keys = ["clientId", "filter", "topic", "name", "kind", "dryRun", "limit", "after", "payload"];
const more = [
  "untilUs",
  "fromUs",
  "toUs",
  "qos",
  "minutes",
  "text",
  "password",
  "role",
  "database",
];
const key = fc.oneof(
  fc.constantFrom(...keys, ...more, "shard", "force", "__proto__", "constructor", "toString"),
  fc.string({ maxLength: 8 }),
);
const odd = fc.constantFrom(
  "",
  "#",
  "+",
  "a/#/b",
  "\u0000",
  "../..",
  "%00",
  "x".repeat(3000),
  "$share/",
);
const value = fc.oneof(
  odd,
  fc.string({ unit: "binary", maxLength: 20 }),
  fc.constantFrom(0, -1, 1e308, 2 ** 53, 0.5, true, false, null, "true", "1", "verify", "drop"),
  fc.array(fc.string({ maxLength: 3 }), { maxLength: 3 }),
  fc.dictionary(fc.string({ maxLength: 3 }), fc.string({ maxLength: 3 }), { maxKeys: 3 }),
);
const body = fc.dictionary(key, value, { maxKeys: 5 });
const query = fc.array(fc.tuple(key, odd), { maxLength: 4 });
const segment = fc.oneof(
  odd.filter((text) => text !== ""),
  fc.constantFrom("1", "4294967296", "a", "b", "messages", "00000000", "verify-1", "pause"),
);

const runs = 25;

test.each(operationNames)(
  "whatever is sent to %s is answered or refused with a code",
  async (name) => {
    const { method, path } = operations[name];
    const hasBody = "body" in contract[name];
    const segments = fc.array(segment, { minLength: 3, maxLength: 3 });
    await fc.assert(
      fc.asyncProperty(segments, query, body, async (parts, pairs, sent) => {
        let at = 0;
        const place = path.replaceAll(/\{\w+\}/g, () => encodeURIComponent(parts[at++] ?? ""));
        const search = new URLSearchParams(pairs).toString();
        const answer = await world.ask(`/api/v1${place}?${search}`, {
          method: method.toUpperCase(),
          ...(hasBody ? { body: sent } : {}),
        });
        expect([500, 501], answer.text.slice(0, 300)).not.toContain(answer.status);
        if (answer.status >= 400) expect(answer.json?.code).toMatch(/^[A-Z]+(_[A-Z0-9]+)+$/);
        expect(answer.text.length).toBeLessThan(20_000);
      }),
      { numRuns: runs },
    );
  },
);
