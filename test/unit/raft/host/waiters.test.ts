import { expect, test } from "vitest";
import { Waiters } from "../../../../src/raft/host/waiters.ts";

const limits = { waitersMax: 10, waitTicksMax: 10 };

test("a proposal cut off here may still be committed by a member that holds it: its fate is unknown", async () => {
  const waiters = new Waiters(1, limits, () => undefined);
  const first = waiters.propose(5, 1, 0);
  const second = waiters.propose(5, 3, 0);
  await expect(first).rejects.toMatchObject({ code: "RAFT_PROPOSAL_UNKNOWN" });
  waiters.applied(5, 3, "done");
  expect(await second).toBe("done");
});

test("a proposal did not happen once another entry is committed at its index", async () => {
  const waiters = new Waiters(1, limits, () => undefined);
  const lost = waiters.propose(5, 1, 0);
  waiters.applied(5, 2, "of another");
  await expect(lost).rejects.toMatchObject({ code: "RAFT_PROPOSAL_DROPPED" });
});
