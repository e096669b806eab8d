// Appends on their way to a leader that comes, goes, loses messages and answers late.

import { describe, expect, test } from "vitest";
import {
  decodeForward,
  encodeForward,
  type ForwardMessage,
} from "../../../src/cluster/core/forward-codec.ts";
import { defaultForwardSettings, ForwardQueue } from "../../../src/cluster/core/forward-queue.ts";
import { appendRequest } from "../../support/store-calls.ts";

function request(value: string) {
  const { evidence: _, ...plain } = appendRequest("t/1", value);
  return plain;
}

function queueOf(settings = {}) {
  const sent: Array<{ to: number; message: ForwardMessage }> = [];
  const answers = new Map<string, string>();
  const send = (to: number, message: ForwardMessage): void => void sent.push({ to, message });
  const queue = new ForwardQueue(3, "w", send, { ...defaultForwardSettings, ...settings });
  const append = (value: string, nowMs = 0): void =>
    queue.append(request(value), nowMs, (error, outcome) => {
      if (answers.has(value)) throw new Error(`${value} hears a second answer`);
      answers.set(value, outcome?.kind === "stored" ? `${outcome.timeUs}` : `${error?.code}`);
    });
  const take = (): Array<{ to: number; message: ForwardMessage }> => sent.splice(0);
  const values = (): string[] =>
    take().map(({ to, message }) => {
      if (message.kind !== "batch") return `${message.kind} to ${to}`;
      const frames = message.requests.map(({ frame }) => Buffer.from(frame).toString());
      return `${message.first}: ${frames.join(" ")} to ${to}`;
    });
  const stored = (epoch: number, first: number, ...timesUs: number[]): void =>
    queue.receive({ kind: "answers", epoch, first, timesUs, fenced: false }, 0);
  const opened = (token: number, epoch: number): void =>
    queue.receive({ kind: "opened", token, epoch }, 0);
  return { queue, answers, append, values, stored, opened };
}

describe("appends on their way to a leader", () => {
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
    queue.receive({ kind: "answers", epoch: 70, first: 1, timesUs: [], fenced: true }, 0);
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
});

test("messages about appends come back as they were, and nothing else is one", () => {
  const requests = [
    request("x"),
    { ...request(""), retain: true, keep: false, form: "v5" as const },
  ];
  const place = { epoch: 1_767_225_600_000_000, first: 9 };
  const messages: ForwardMessage[] = [
    { kind: "open", token: 3, name: "node 1.2", topic: "t/é", publisher: "p" },
    { kind: "opened", token: 3, epoch: 1_767_225_600_000_000 },
    { kind: "batch", name: "node 1.2", ...place, requests },
    { kind: "answers", ...place, timesUs: [1, 2 ** 52], fenced: true },
  ];
  for (const message of messages) {
    const bytes = encodeForward(message);
    expect(decodeForward(bytes)).toEqual(message);
    for (let end = 0; end < bytes.length; end++) {
      expect(decodeForward(bytes.subarray(0, end))).toBeUndefined();
    }
    expect(decodeForward(Buffer.concat([bytes, Buffer.from([0])]))).toBeUndefined();
  }
  expect(decodeForward(Buffer.from([9]))).toBeUndefined();
});
