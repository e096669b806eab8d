// Writes on their way to a leader that comes, goes, loses messages and answers late.

import { describe, expect, test } from "vitest";
import { type CodedError, SeededRandom } from "../../../src/base/index.ts";
import {
  decodeForward,
  encodeForward,
  type ForwardMessage,
  type Verdict,
} from "../../../src/cluster/core/forward-codec.ts";
import { defaultForwardSettings, ForwardQueue } from "../../../src/cluster/core/forward-queue.ts";
import { errorOf, refusals, type ShardRequest, storeErrors } from "../../../src/store/index.ts";
import { refusalOf } from "../../../src/store/verdict.ts";
import { appendRequest } from "../../support/store-calls.ts";

function request(value: string): ShardRequest & { kind: "append" } {
  return { kind: "append", request: appendRequest("t/1", value) };
}

function queueOf(settings = {}) {
  const sent: Array<{ to: number; message: ForwardMessage }> = [];
  const answers = new Map<string, string>();
  const send = (to: number, message: ForwardMessage): void => void sent.push({ to, message });
  const replica = { appliedUs: Number.MAX_SAFE_INTEGER, awaited: 0 };
  const place = {
    appliedUs: () => replica.appliedUs,
    awaits: (timeUs: number) => {
      replica.awaited = timeUs;
    },
  };
  const all = { ...defaultForwardSettings, ...settings };
  const queue = new ForwardQueue({ shard: 3, name: "w" }, send, place, all);
  const append = (value: string, nowMs = 0): ShardRequest & { kind: "append" } => {
    const asked = request(value);
    queue.ask(asked, nowMs, (error, timeUs, refusal) => {
      if (answers.has(value)) throw new Error(`${value} hears a second answer`);
      answers.set(value, error?.code ?? `${timeUs}${refusal === 0 ? "" : ` refused ${refusal}`}`);
    });
    return asked;
  };
  const take = (): Array<{ to: number; message: ForwardMessage }> => sent.splice(0);
  const values = (): string[] =>
    take().map(({ to, message }) => {
      if (message.kind !== "batch") return `${message.kind} to ${to}`;
      const frames = message.requests.map((each) =>
        each.kind === "append" ? Buffer.from(each.request.frame).toString() : each.kind,
      );
      return `${message.first}: ${frames.join(" ")} to ${to}`;
    });
  const stored = (epoch: number, first: number, ...timesUs: number[]): void =>
    answer(epoch, first, ...timesUs.map((timeUs) => ({ timeUs, refusal: 0 })));
  const answer = (epoch: number, first: number, ...verdicts: Verdict[]): void =>
    queue.receive({ kind: "answers", epoch, first, verdicts, fenced: false }, 0);
  const opened = (token: number, epoch: number): void =>
    queue.receive({ kind: "opened", token, epoch }, 0);
  return { queue, replica, answers, append, values, stored, answer, opened };
}

describe("writes on their way to a leader", () => {
  test("wait for a leader and its opening, then go in one batch", () => {
    const { queue, append, values, opened } = queueOf();
    append("a");
    expect(values()).toEqual([]);
    queue.setLeader(2, 0);
    append("b");
    expect(values()).toEqual(["open to 2"]);
    opened(1, 70);
    expect(values()).toEqual(["1: a b to 2"]);
  });

  test("what comes while a batch is under way makes the next", () => {
    const { queue, answers, append, values, stored, opened } = queueOf();
    queue.setLeader(2, 0);
    append("a");
    opened(1, 70);
    append("b");
    append("c");
    expect(values()).toEqual(["open to 2", "1: a to 2"]);
    stored(70, 1, 500);
    expect(values()).toEqual(["2: b c to 2"]);
    expect([...answers]).toEqual([["a", "500"]]);
  });

  test("go again from the first unanswered, under the same sequences, to whoever leads", () => {
    const { queue, answers, append, values, stored, opened } = queueOf();
    queue.setLeader(2, 0);
    for (const value of ["a", "b", "c"]) append(value);
    opened(1, 70);
    stored(70, 1, 500);
    expect(values()).toEqual(["open to 2", "1: a b c to 2"]);
    append("d");
    queue.setLeader(3, 10);
    expect(values()).toEqual(["2: b c to 3"]);
    queue.tick(10 + defaultForwardSettings.answerMs);
    expect(values()).toEqual(["2: b c to 3"]);
    // The first leader's answer comes late, and is of use all the same.
    stored(70, 1, 500, 501, 502);
    expect(values()).toEqual(["4: d to 3"]);
    stored(70, 2, 501, 502);
    expect([...answers]).toEqual([
      ["a", "500"],
      ["b", "501"],
      ["c", "502"],
    ]);
  });

  test("an opening that is not answered is asked for again, and the older one does not count", () => {
    const { queue, append, values, opened } = queueOf();
    queue.setLeader(2, 0);
    append("a");
    queue.tick(defaultForwardSettings.answerMs);
    expect(values()).toEqual(["open to 2", "open to 2"]);
    opened(1, 70);
    expect(values()).toEqual([]);
    opened(2, 71);
    expect(values()).toEqual(["1: a to 2"]);
  });

  test("a writer that is not known any more leaves unknown what was under way, and that alone", () => {
    const { queue, answers, append, values, opened, stored } = queueOf();
    queue.setLeader(2, 0);
    append("a");
    opened(1, 70);
    append("b");
    queue.receive({ kind: "answers", epoch: 70, first: 1, verdicts: [], fenced: true }, 0);
    expect([...answers]).toEqual([["a", "STORE_FATE_UNKNOWN"]]);
    opened(2, 90);
    stored(70, 1, 400);
    expect(values()).toEqual(["open to 2", "1: a to 2", "open to 2", "1: b to 2"]);
    stored(90, 1, 600);
    expect(answers.get("b")).toBe("600");
  });

  test("who waits too long is told once, and the request keeps its place", () => {
    const { queue, answers, append, values, opened, stored } = queueOf();
    queue.setLeader(2, 0);
    append("a");
    opened(1, 70);
    queue.tick(defaultForwardSettings.waitMs);
    append("b", defaultForwardSettings.waitMs);
    values();
    stored(70, 1, 500);
    expect(values()).toEqual(["2: b to 2"]);
    stored(70, 2, 501);
    queue.close();
    expect([...answers]).toEqual([
      ["a", "STORE_FATE_UNKNOWN"],
      ["b", "501"],
    ]);
  });

  test("the queue is bounded, a batch as well", () => {
    const { queue, answers, append, values, opened } = queueOf({
      ...{ requestsMax: 5, batchRequestsMax: 2 },
    });
    queue.setLeader(2, 0);
    for (const value of ["a", "b", "c", "d", "e", "f"]) append(value);
    opened(1, 70);
    expect(values()).toEqual(["open to 2", "1: a b to 2"]);
    expect([...answers]).toEqual([["f", "STORE_LIMIT_REACHED"]]);
    queue.close();
    expect(new Set(answers.values())).toEqual(
      new Set(["STORE_LIMIT_REACHED", "STORE_FATE_UNKNOWN"]),
    );
  });

  test("what is decided is told once the replica here shows it, in the order of the requests", () => {
    const { queue, replica, answers, append, stored, answer, opened } = queueOf();
    queue.setLeader(2, 0);
    for (const value of ["a", "b", "c"]) append(value);
    opened(1, 70);
    replica.appliedUs = 499;
    stored(70, 1, 500);
    answer(70, 2, { timeUs: 501, refusal: 7 });
    expect([...answers]).toEqual([]);
    expect(replica.awaited).toBe(501);
    replica.appliedUs = 500;
    queue.land();
    expect([...answers]).toEqual([["a", "500"]]);
    replica.appliedUs = 600;
    queue.land();
    stored(70, 3, 502);
    expect([...answers]).toEqual([
      ["a", "500"],
      ["b", "501 refused 7"],
      ["c", "502"],
    ]);
  });

  test("a replica that stays behind leaves unknown what was decided, and tells of it once", () => {
    const { queue, replica, answers, append, stored, opened } = queueOf();
    queue.setLeader(2, 0);
    append("a");
    opened(1, 70);
    replica.appliedUs = 0;
    stored(70, 1, 500);
    queue.tick(defaultForwardSettings.waitMs);
    replica.appliedUs = 500;
    queue.land();
    expect([...answers]).toEqual([["a", "STORE_FATE_UNKNOWN"]]);
  });

  test("a request that stays behind its owner's answer has bytes of its own", () => {
    const { queue, append, values, opened } = queueOf();
    const { frame } = append("lent").request;
    queue.tick(defaultForwardSettings.waitMs);
    frame.fill(0);
    queue.setLeader(2, defaultForwardSettings.waitMs);
    opened(1, 70);
    expect(values()).toEqual(["open to 2", "1: lent to 2"]);
  });
});

const place = { epoch: 1_767_225_600_000_000, first: 9 };
const item = { publisher: "p", incarnation: 2 ** 51, ownerEpoch: 2 ** 51 + 1, packetId: 65_535 };
const { publisher: _, ...owner } = item;
const writes = [
  { key: "a/é", value: Buffer.from("x") },
  { key: "b", value: undefined },
];

const requests: ShardRequest[] = [
  request("x"),
  { kind: "append", request: { ...request("").request, retain: true, keep: false, form: "v5" } },
  { kind: "append", request: appendRequest("t", "q", { qos: 2, evidence: owner }) },
  { kind: "append", request: appendRequest("t", "q", { evidence: { ...owner, routed: true } }) },
  {
    kind: "append",
    request: appendRequest("t", "s", { writer: { name: "w", epoch: 2 ** 52, sequence: 300 } }),
  },
  { kind: "claim", item },
  { kind: "release", item },
  { kind: "open_writer", name: "w" },
  { kind: "close_writer", name: "" },
  { kind: "hold", name: "h", afterUs: 2 ** 51 },
  { kind: "release_hold", name: "h" },
  {
    kind: "write",
    writes,
    guards: [
      { key: "g", timeUs: undefined },
      { key: "h", timeUs: 5 },
    ],
  },
  {
    kind: "commit",
    commit: {
      ...{ attempt: 1, readUs: 2 ** 51, present: ["p"], absent: ["q", "r"], writes },
      reads: { keys: ["k", "l"], prefixes: ["m/"] },
    },
  },
];
const messages: ForwardMessage[] = [
  { kind: "open", token: 3, name: "node 1.2" },
  { kind: "opened", token: 3, epoch: 1_767_225_600_000_000 },
  { kind: "batch", name: "node 1.2", ...place, requests },
  {
    ...{ kind: "answers", ...place, fenced: true },
    verdicts: [
      { timeUs: 1, refusal: 0 },
      { timeUs: 2 ** 52, refusal: 300 },
    ],
  },
  { kind: "call", name: "node 1.2", id: 7, call: { kind: "rotate" } },
  { kind: "call", name: "n", id: 8, call: { kind: "drop", untilUs: 2 ** 51, force: true } },
  {
    kind: "call",
    name: "n",
    id: 9,
    call: { kind: "end_evidence", publisher: "p", incarnation: 6 },
  },
  { kind: "returned", id: 9, value: 3, timeUs: 2 ** 51 },
];

test("messages about writes come back as they were, and nothing else is one", () => {
  for (const message of messages) {
    const bytes = encodeForward(message);
    expect(decodeForward(bytes)).toEqual(message);
    const parts = Array.from({ length: bytes.length }, (_, end) => bytes.subarray(0, end));
    expect(parts.filter((part) => decodeForward(part) !== undefined)).toEqual([]);
    expect(decodeForward(Buffer.concat([bytes, Buffer.from([0])]))).toBeUndefined();
  }
  expect(decodeForward(Buffer.from([9]))).toBeUndefined();
});

test("bytes that were changed are another message or none, and never a fault", () => {
  const random = new SeededRandom("garbled");
  for (const bytes of messages.map(encodeForward)) {
    for (let round = 0; round < 200; round++) {
      const garbled = Buffer.from(bytes);
      garbled[random.below(garbled.length)] = random.below(256);
      const read = decodeForward(garbled);
      if (read !== undefined) encodeForward(read);
    }
  }
});

test("what a refusal says comes back as the error that it was", () => {
  const commit = requests.at(-1) as ShardRequest;
  const write = requests.at(-2) as ShardRequest;
  const errors: Array<[ShardRequest, CodedError]> = [
    [write, storeErrors.guardFailed({ key: "h" })],
    [commit, storeErrors.txConflict({ attempts: 1 })],
    [commit, storeErrors.preconditionFailed({ key: "p", expected: "present" })],
    [commit, storeErrors.preconditionFailed({ key: "r", expected: "absent" })],
    [requests[2] as ShardRequest, storeErrors.ownerFenced({ publisher: "p" })],
    [requests[4] as ShardRequest, storeErrors.writerFenced({ writer: "w" })],
  ];
  for (const [asked, error] of errors) {
    const refusal = refusalOf(error, asked) ?? 0;
    const { code, message } = errorOf(refusal, asked) as CodedError;
    expect([code, message]).toEqual([error.code, error.message]);
  }
  expect(refusalOf(storeErrors.notLeader({}), commit)).toBeUndefined();
  expect(errorOf(refusals.repeat, commit)).toBeUndefined();
});
