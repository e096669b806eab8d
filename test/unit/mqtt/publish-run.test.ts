// Runs of plain PUBLISHes and PUBACKs, and the table of topics behind them.

import { describe, expect, test, vi } from "vitest";
import { PubackRun, RunReader, runFramesMax } from "../../../src/mqtt/codec/publish-run.ts";
import { TopicTable } from "../../../src/mqtt/codec/topic-table.ts";
import { decodeContextDefault, encodePacket, type Packet } from "../../../src/mqtt/index.ts";
import { publishing } from "../../support/raw-mqtt.ts";
import { Conversation, connect4, connect5 } from "./conversation.ts";

const context4 = { ...decodeContextDefault, version: 4 } as const;
const sizeMax = 1 << 20;

function frames(packets: readonly Packet[], version: 4 | 5 = 4): Buffer {
  return Buffer.concat(packets.map((packet) => encodePacket(packet, version)));
}

function read(bytes: Buffer, version: 4 | 5 = 4) {
  return new RunReader().read(bytes, 0, sizeMax, { ...context4, version }, undefined);
}

describe("a run", () => {
  test("holds consecutive plain frames of one topic, with ids and places", () => {
    const bytes = frames([
      publishing("a/b", "one", { id: 7 }),
      publishing("a/b", "x".repeat(300), { id: 9 }),
      publishing("a/c", "other", { id: 10 }),
    ]);
    const run = read(bytes);
    expect(run?.count).toBe(2);
    expect(run?.topic.text).toBe("a/b");
    expect([...run!.packetIds.subarray(0, 2)]).toEqual([7, 9]);
    expect(run!.frame(0).subarray(-3).toString()).toBe("one");
    expect(bytes.subarray(run!.end).toString("latin1")).toContain("a/c");
    expect(bytes.readUInt16BE(run!.idOffsets[1])).toBe(9);
    expect(run!.frameBytesMax).toBe(run!.frame(1).length);
  });

  test.each<[string, Packet]>([
    ["DUP", publishing("a", "x", { dup: true })],
    ["RETAIN", publishing("a", "x", { retain: true })],
    ["QoS 2", publishing("a", "x", { qos: 2 })],
    ["another QoS", publishing("a", "x", { qos: 0 })],
    ["properties", publishing("a", "x", { properties: { messageExpiryS: 3 } })],
    ["another topic of its length", publishing("b", "x")],
  ])("ends before %s", (_what, packet) => {
    const plain = publishing("a", "x");
    expect(read(frames([plain, packet, plain], 5), 5)?.count).toBe(1);
  });

  test("takes no frame that is faulty, cut, or too large", () => {
    const whole = frames([publishing("a", "payload")]);
    for (let length = 0; length < whole.length; length++) {
      expect(read(whole.subarray(0, length))).toBeUndefined();
    }
    expect(new RunReader().read(whole, 0, whole.length - 1, context4, undefined)).toBeUndefined();
    expect(read(Buffer.from("32050001610000", "hex"))).toBeUndefined(); // packet id 0
    expect(read(Buffer.from("328500016100010000", "hex"))).toBeUndefined(); // long length
    expect(read(Buffer.from("32040000000100", "hex"))).toBeUndefined(); // empty topic
    expect(read(Buffer.from("320500012b0001", "hex"))).toBeUndefined(); // wildcard
    expect(read(Buffer.from("3205000161000178", "hex"), 5)).toBeUndefined(); // property length cut
    expect(read(Buffer.from("3003000161", "hex"))?.count).toBe(1);
  });

  test("is bounded by its tables", () => {
    const run = read(frames(Array.from({ length: 1100 }, () => publishing("t", "", { qos: 0 }))));
    expect(run?.count).toBe(runFramesMax);
  });
});

test("PUBACKs of success are read together, up to anything else", () => {
  const acks = new PubackRun();
  acks.read(Buffer.from("4002000140020102400300030040020004", "hex"), 0);
  expect([acks.count, acks.end]).toEqual([2, 8]);
  expect([...acks.packetIds.subarray(0, 2)]).toEqual([1, 0x102]);
  acks.read(Buffer.from("40020000", "hex"), 0);
  expect(acks.count).toBe(0);
  acks.read(Buffer.from("400200", "hex"), 0);
  expect(acks.count).toBe(0);
});

describe("the table of topics", () => {
  test("finds what was added by its bytes, whatever else is there", () => {
    const table = new TopicTable();
    for (let n = 0; n < 1000; n++) {
      const bytes = Buffer.from(`plant/${n}`);
      table.add(`plant/${n}`, bytes, 0, bytes.length);
    }
    for (let n = 0; n < 1000; n++) {
      const bytes = Buffer.from(`..plant/${n}`);
      expect(table.find(bytes, 2, bytes.length)?.text).toBe(`plant/${n}`);
    }
    expect(table.find(Buffer.from("plant/1000"), 0, 10)).toBeUndefined();
  });

  test("forgets all when it is full, and never keeps very long ones", () => {
    const table = new TopicTable(10);
    for (let n = 0; n < 11; n++) table.add(`t${n}`, Buffer.from(`t${n}`), 0, `t${n}`.length);
    expect(table.size).toBe(1);
    const long = "x".repeat(2000);
    table.add(long, Buffer.from(long), 0, 2000);
    expect(table.size).toBe(1);
  });
});

describe("a connection whose owner takes runs", () => {
  test("acks the run it was told to, before anything that follows", () => {
    const counts: number[] = [];
    const talk: Conversation = new Conversation({
      events: {
        onPublishRun: (run) => {
          counts.push(run.count);
          talk.connection.ackRun(run, 0);
          return true;
        },
      },
    }).say(connect4);
    talk.heardHex();
    talk.say(frames([1, 2, 3].map((id) => publishing("t", "m", { id }))).toString("hex"));
    expect(counts).toEqual([3]);
    expect(talk.heardShort()).toEqual(["puback 1 0x0", "puback 2 0x0", "puback 3 0x0"]);
  });

  test("says the reason of a run to MQTT 5 clients", () => {
    const talk: Conversation = new Conversation({
      events: {
        onPublishRun: (run) => {
          talk.connection.ackRun(run, 0x10);
          return true;
        },
      },
    }).say(connect5);
    talk.heardHex();
    talk.say(frames([publishing("t", "m", { id: 5 })], 5).toString("hex"));
    expect(talk.heardShort()).toEqual(["puback 5 0x10"]);
  });

  test("gets one by one what it declines, and nothing behind an end", () => {
    const talk: Conversation = new Conversation({
      events: {
        onPublishRun: () => false,
        onPublish: (publish, token) => {
          talk.events.push(`publish ${publish.payload} ${token}`);
          if (token === 2) talk.connection.disconnect(0x87);
        },
      },
    }).say(connect4);
    talk.events.length = 0;
    talk.say(frames([1, 2, 3].map((id) => publishing("t", `${id}`, { id }))).toString("hex"));
    expect(talk.events.slice(0, 2)).toEqual(["publish 1 1", "publish 2 2"]);
    expect(talk.events.some((event) => event.startsWith("publish 3"))).toBe(false);
  });

  test("is not looked for runs while it takes none", () => {
    const read = vi.spyOn(RunReader.prototype, "read");
    let takes = false;
    const talk: Conversation = new Conversation({
      events: { takesRuns: () => takes, onPublishRun: () => true },
    }).say(connect4);
    talk.events.length = 0;
    const bytes = frames([publishing("t", "m", { qos: 0 })]).toString("hex");
    talk.say(bytes);
    expect([read.mock.calls.length, talk.events.length]).toEqual([0, 1]);
    takes = true;
    talk.say(bytes);
    expect([read.mock.calls.length, talk.events.length]).toEqual([1, 1]);
    read.mockRestore();
  });

  test("hears acks in a row at once, and odd ones by themselves", () => {
    const heard: string[] = [];
    const talk = new Conversation({
      events: {
        onPubacks: (ids, count) => {
          heard.push(ids.subarray(0, count).join(","));
          return true;
        },
        onPuback: (id, reasonCode) => void heard.push(`${id} ${reasonCode}`),
      },
    }).say(connect5);
    talk.say("400200014002000240030003104002000440020005");
    expect(heard).toEqual(["1,2", "3 16", "4,5"]);
  });

  test("is refused what exceeds its Receive Maximum by the rules of each packet", () => {
    let runs = 0;
    const talk: Conversation = new Conversation({
      settings: { receiveMaximum: 1 },
      events: {
        onPublishRun: () => {
          runs++;
          return false;
        },
      },
    }).say(connect5);
    talk.say(
      frames(
        [1, 2].map((id) => publishing("t", "m", { id })),
        5,
      ).toString("hex"),
    );
    expect(runs).toBe(1);
    expect(talk.end?.reasonCode).toBe(0x93);
  });
});
