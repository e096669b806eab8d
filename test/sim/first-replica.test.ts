// A local data directory becomes the first replica of a cluster, in place: cut off at each of its
// file-system steps, on a simulated disk.

import { expect, test } from "vitest";
import { FirstReplicaRun, type Strike } from "../support/first-replica-run.ts";

const one = process.env.FLAGSTONE_SIM_STEP;
const isLong = process.env.FLAGSTONE_LONG === "1";

/** All of them, or all around the switch and some before it: those of a store that opens least. */
function strikesOf(steps: number, firstOwn: number): Strike[] {
  const strikes: Strike[] = [];
  for (let step = 1; step <= steps; step++) {
    const every = isLong || step > steps - 8 ? 1 : step >= firstOwn ? 10 : 40;
    const isMeant = one === undefined ? step % every === 0 : step === Number(one);
    if (isMeant) strikes.push({ step, how: "power" });
    if (isMeant && (every === 1 || step % 4 === 0)) strikes.push({ step, how: "kill" });
  }
  return strikes;
}

test("a node of a cluster serves all that the local node had, and goes on behind it", async () => {
  const run = new FirstReplicaRun("whole");
  const before = await run.fill();
  expect(await run.heldLocally()).toEqual(before);
  expect(await run.become()).toMatchObject({ isNew: true });
  expect(await run.become()).toMatchObject({ isNew: false });
  await expect(run.become(undefined, "n2")).rejects.toThrow("it is the member n1 of a cluster");
  const first = await run.heldByMember();
  expect(first.held).toEqual(before);
  expect(first.voters).toEqual(["1", "1", "1", "1", "1"]);
  expect(first.timeUs).toBeGreaterThan(Math.max(...before.map(([, , appliedUs]) => appliedUs)));
  const second = await run.heldByMember();
  expect(second.held).not.toEqual(before);
  expect(second.timeUs).toBeGreaterThan(first.timeUs);
});

test("cut off at any step it is the old directory or a member, and a rerun finishes", async () => {
  const whole = new FirstReplicaRun("steps");
  await whole.fill();
  await whole.become();
  const { steps } = whole;
  const firstOwn = whole.stepsBeside;
  const counts = { steps, firstOwn, old: 0, member: 0 };
  for (const strike of strikesOf(steps, firstOwn)) {
    const told = `FLAGSTONE_SIM_STEP=${strike.step} (${strike.how})`;
    const run = new FirstReplicaRun("steps");
    const before = await run.fill();
    expect(await run.become(strike), told).toBeUndefined();
    const isMember = await run.isMember();
    counts[isMember ? "member" : "old"]++;
    if (!isMember) expect(await run.heldLocally(), told).toEqual(before);
    expect(await run.become(), told).toMatchObject({ isNew: !isMember });
    // Finished is durable.
    run.machine.crash();
    expect((await run.heldByMember()).held, told).toEqual(before);
  }
  console.log(`first replica: ${JSON.stringify(counts)}`);
  if (one !== undefined) return;
  expect(counts.old).toBeGreaterThan(0);
  expect(counts.member).toBeGreaterThan(0);
});
