import { expect, test } from "vitest";
import { CodedError, SimClock } from "../../../src/base/index.ts";
import { ReadRounds } from "../../../src/cluster/read-rounds.ts";

type Asked = { answer(): void; fail(error: Error): void };

function rig() {
  const clock = new SimClock();
  const asked: Asked[] = [];
  const rounds = new ReadRounds({
    clock: clock.createProcess(),
    read: () =>
      new Promise((resolve, reject) => {
        asked.push({ answer: () => resolve(undefined), fail: reject });
      }),
    late: () => new Error("late"),
  });
  const told: string[] = [];
  const join = (name: string): void => {
    rounds.join().then(
      () => told.push(name),
      (error: Error) => told.push(`${name}: ${error.message}`),
    );
  };
  return { clock, asked, told, join };
}

test("whoever comes while a round is under way is answered by the next, all by the same", async () => {
  const { clock, asked, told, join } = rig();
  join("a");
  join("b");
  await clock.advance(1);
  expect(asked).toHaveLength(1);
  join("c");
  join("d");
  await clock.advance(1);
  expect(asked).toHaveLength(1);
  asked[0]?.answer();
  await clock.advance(1);
  expect([told, asked.length]).toEqual([["a", "b"], 2]);
  asked[1]?.answer();
  await clock.advance(1);
  expect(told).toEqual(["a", "b", "c", "d"]);
});

test("a question that was lost or refused is asked again, until the round has lasted too long", async () => {
  const { clock, asked, told, join } = rig();
  join("a");
  await clock.advance(600);
  expect(asked.length).toBeGreaterThan(1);
  asked.at(-1)?.fail(new CodedError("RAFT_NOT_LEADER", "retry", "nobody leads", {}));
  await clock.advance(300);
  asked.at(-1)?.answer();
  await clock.advance(1);
  expect(told).toEqual(["a"]);
  join("b");
  await clock.advance(6_000);
  expect(told).toEqual(["a", "b: late"]);
});

test("nobody waits for a group that has ended", async () => {
  const { clock, asked, told, join } = rig();
  join("a");
  await clock.advance(1);
  asked[0]?.fail(new CodedError("RAFT_HOST_CLOSED", "closed", "closed", {}));
  await clock.advance(1);
  expect(told).toEqual(["a: closed"]);
});
