// What an owner of a session may have sent, as the next owner has to take it, when both are at nodes
// whose replicas are behind (docs/decisions/093).

import fc from "fast-check";
import { expect, test } from "vitest";
import { decodeIds, encodeIds } from "../../src/session/core/records.ts";
import { Reservation } from "../../src/session/core/reservation.ts";

const settings = { windowMax: 4, sentAheadUs: 2_000 };
const shard = 1;

type Step =
  | { readonly kind: "message"; readonly gapUs: number }
  /** How far the replica is behind the leader, and its clock. */
  | { readonly kind: "lag"; readonly lagUs: number }
  | { readonly kind: "acked" }
  /** Its write happens before the owner is gone, or not, and it hears of it or does not. */
  | { readonly kind: "lost"; readonly happens: boolean };

const step: fc.Arbitrary<Step> = fc.oneof(
  { weight: 8, arbitrary: fc.record({ kind: fc.constant("message"), gapUs: fc.nat(3_000) }) },
  { weight: 3, arbitrary: fc.record({ kind: fc.constant("lag"), lagUs: fc.nat(20_000) }) },
  { weight: 3, arbitrary: fc.record({ kind: fc.constant("acked") }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant("lost"), happens: fc.boolean() }) },
) as fc.Arbitrary<Step>;

test("whatever an owner may have sent is in doubt for the next, and its ids are not given anew", () => {
  fc.assert(
    fc.property(fc.array(step, { maxLength: 80 }), (steps) => {
      let leaderUs = 100_000;
      let lagUs = 0;
      let cursorUs = 0;
      let stored = encodeIds(new Reservation(settings, undefined).exact(new Map()));
      let owner = new Reservation(settings, undefined);
      const cursor = () => new Map([[shard, cursorUs]]);
      /** Sent by owners that are gone or not, above the cursor; with their ids. */
      let sent: Array<{ timeUs: number; packetId: number }> = [];
      const renew = (happens: boolean, heard: boolean): void => {
        const seenUs = Math.max(0, leaderUs - lagUs);
        const record = owner.renewal(
          { tail: new Map([[shard, seenUs]]), wallUs: seenUs },
          cursor(),
        );
        if (happens) stored = encodeIds(record);
        if (heard) owner.committed(record);
        else owner.failed();
      };
      const next = (): void => {
        owner = new Reservation(settings, decodeIds(stored));
        for (const { timeUs } of sent) expect(owner.inDoubt(shard, timeUs)).toBe(true);
        renew(true, true);
      };
      next();
      for (const one of steps) {
        if (one.kind === "lag") lagUs = one.lagUs;
        else if (one.kind === "acked") {
          cursorUs = leaderUs;
          sent = [];
        } else if (one.kind === "lost") {
          renew(one.happens, false);
          next();
        } else {
          leaderUs += one.gapUs + 1;
          // As the pump does: what is not allowed waits for a renewal, and once more where it is behind.
          for (let tries = 0; tries < 3 && !owner.allows(shard, leaderUs); tries++) {
            if (tries > 0) lagUs = 0;
            renew(true, true);
          }
          if (!owner.allows(shard, leaderUs)) continue;
          const packetId = owner.take(() => false);
          if (packetId === undefined) continue;
          expect(sent.map((other) => other.packetId)).not.toContain(packetId);
          sent.push({ timeUs: leaderUs, packetId });
        }
      }
      next();
    }),
    { numRuns: 300, endOnFailure: true },
  );
});
