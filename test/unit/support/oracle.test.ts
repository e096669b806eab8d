import { describe, expect, test } from "vitest";
import {
  assertNoFaults,
  DeliveryOracle,
  formatPayload,
  formatReport,
  type MessageName,
  parsePayload,
  type Receipt,
} from "../../support/oracle.ts";

/** One publisher, one session that wants `t/...`, and what a test then does with them. */
function createScene(qos = 2) {
  const oracle = new DeliveryOracle();
  oracle.addSession("s", 2, (topic) => topic.startsWith("t/"));
  const publish = (topic = "t/1", ack = true): MessageName => {
    const message = oracle.nextMessage("p", topic);
    oracle.sent(message, qos, 1n);
    if (ack) oracle.acked(message, 5n);
    return message;
  };
  const receive = (message: MessageName, how: Partial<Receipt> = {}): void => {
    const usual = { session: "s", qos, dup: false, packetId: 1, connection: 1, atNs: 9n };
    oracle.received({ ...message, ...usual, ...how });
  };
  const faults = () => oracle.check().faults.map(({ kind }) => kind);
  return { oracle, publish, receive, faults };
}

describe("loss", () => {
  test("is an acked message that did not come", () => {
    const { publish, receive, faults } = createScene();
    receive(publish());
    publish();
    expect(faults()).toEqual(["loss"]);
  });

  test("is not a message without an ack, nor one on a topic that nobody wants", () => {
    const { publish, faults } = createScene();
    publish("t/1", false);
    publish("other");
    expect(faults()).toEqual([]);
  });

  test("is not a message that was acked after the moment in question", () => {
    const { oracle, publish } = createScene();
    publish();
    expect(oracle.check(5n).faults).toEqual([]);
    expect(oracle.check(6n).faults).toHaveLength(1);
  });

  test("is never of QoS 0", () => {
    const { publish, faults } = createScene(0);
    publish();
    expect(faults()).toEqual([]);
  });
});

describe("duplicates", () => {
  test("at QoS 2 are faults in every form", () => {
    const { publish, receive, faults } = createScene(2);
    const message = publish();
    receive(message);
    receive(message, { dup: true, connection: 2 });
    expect(faults()).toEqual(["duplicate"]);
  });

  test("at QoS 1 need DUP", () => {
    const { publish, receive, faults } = createScene(1);
    const message = publish();
    receive(message);
    receive(message, { connection: 2 });
    expect(faults()).toEqual(["duplicate"]);
  });

  test("at QoS 1 need a new connection", () => {
    const { publish, receive, faults } = createScene(1);
    const message = publish();
    receive(message);
    receive(message, { dup: true });
    expect(faults()).toEqual(["duplicate"]);
  });

  test("at QoS 1 with DUP on a new connection are repeats, and are told", () => {
    const { oracle, publish, receive } = createScene(1);
    const message = publish();
    receive(message);
    receive(message, { dup: true, connection: 2 });
    const report = oracle.check();
    expect(report.faults).toEqual([]);
    expect(report.repeats[0]?.again.connection).toBe(2);
    expect(report.repeats[0]?.isExplainedByPublisher).toBe(false);
  });

  test("at QoS 1 with DUP are explained likewise on the same connection", () => {
    const { oracle, publish, receive, faults } = createScene(1);
    const message = publish();
    oracle.sent(message, 1);
    receive(message, { dup: true });
    receive(message, { dup: true });
    expect(faults()).toEqual([]);
    receive(message, { dup: true });
    expect(faults()).toEqual(["duplicate"]);
  });

  test("at QoS 1 are explained by a publisher that sent twice, once", () => {
    const { oracle, publish, receive, faults } = createScene(1);
    const message = publish();
    oracle.sent(message, 1);
    receive(message);
    receive(message);
    expect(faults()).toEqual([]);
    expect(oracle.check().repeats[0]?.isExplainedByPublisher).toBe(true);
    receive(message);
    expect(faults()).toEqual(["duplicate"]);
  });
});

describe("order", () => {
  test("is broken by a message behind a later one of its publisher, over topics", () => {
    const { publish, receive, faults } = createScene(1);
    const [first, second] = [publish("t/1"), publish("t/2")];
    receive(second);
    receive(first);
    expect(faults()).toEqual(["order"]);
  });

  test("is not broken by a repeat", () => {
    const { publish, receive, faults } = createScene(1);
    const [first, second] = [publish(), publish()];
    receive(first);
    receive(second);
    receive(first, { dup: true, connection: 2 });
    receive(second, { dup: true, connection: 2 });
    expect(faults()).toEqual([]);
  });

  test("is the order in which packets arrived, where receipts are told later", () => {
    const { publish, receive, faults } = createScene();
    const [first, second] = [publish(), publish()];
    receive(second, { arrival: 2 });
    receive(first, { arrival: 1 });
    expect(faults()).toEqual([]);
  });

  test("at QoS 0 holds per topic only", () => {
    const { publish, receive, faults } = createScene(0);
    const [first, second, third] = [publish("t/1"), publish("t/2"), publish("t/1")];
    receive(second);
    receive(third);
    expect(faults()).toEqual([]);
    receive(first);
    expect(faults()).toEqual(["order"]);
  });
});

describe("unexpected", () => {
  test("is what nobody sent, what the session does not want, and a higher QoS", () => {
    const { oracle, publish, receive } = createScene(1);
    receive({ publisher: "p", topic: "t/9", sequence: 1 });
    receive(publish("other"));
    receive(publish(), { qos: 2 });
    oracle.stranger("s", "a foreign payload");
    expect(oracle.check().faults.map(({ kind }) => kind)).toEqual(Array(4).fill("unexpected"));
  });
});

describe("the text of a failure", () => {
  test("counts each kind, shows the first of it and says how many more", () => {
    const { oracle, publish } = createScene();
    for (let n = 0; n < 7; n++) publish();
    const text = formatReport(oracle.check());
    expect(text).toContain("7 sent, 7 acked, 0 received\nloss: 7\n");
    expect(text).toContain("s never got t/1 number 1 of p, which was acked");
    expect(text).toContain("and 2 more");
    expect(() => assertNoFaults(oracle.check(), "round 3")).toThrow(/^round 3\n7 sent/);
  });

  test("is absent when all is well", () => {
    const { oracle, publish, receive } = createScene();
    receive(publish());
    assertNoFaults(oracle.check());
  });
});

test("a copy owes the same messages and has received none", () => {
  const { oracle, publish, receive } = createScene();
  receive(publish());
  const copy = oracle.withoutReceipts();
  expect(copy.check()).toMatchObject({ sent: 1, acked: 1, received: 0 });
  expect(copy.missing("s")).toHaveLength(1);
});

describe("what is forgotten", () => {
  test("still counts, and is unexpected when it comes again", () => {
    const { oracle, publish, receive, faults } = createScene();
    const old = publish();
    receive(old);
    oracle.forget(2n);
    expect(oracle.check()).toMatchObject({ faults: [], sent: 1, acked: 1, received: 1 });
    receive(publish());
    expect(faults()).toEqual([]);
    receive(old);
    expect(faults()).toEqual(["unexpected"]);
  });

  test("is nothing that is owed, unacked or younger", () => {
    const { oracle, publish, receive, faults } = createScene();
    const unacked = publish("t/1", false);
    publish();
    oracle.forget(2n);
    receive(unacked);
    expect(faults()).toEqual(["loss"]);
    receive(publish());
    oracle.forget(1n);
    expect(faults()).toContain("loss");
    expect(oracle.check().received).toBe(2);
  });
});

test("a payload carries the name of its message at any size", () => {
  const message = { publisher: "p", topic: "t/1/x", sequence: 12 };
  for (const size of [0, 100]) {
    expect(parsePayload(formatPayload(message, size))).toEqual(message);
    expect(formatPayload(message, size).length).toBeGreaterThanOrEqual(size);
  }
  expect(parsePayload("hello")).toBeUndefined();
});
