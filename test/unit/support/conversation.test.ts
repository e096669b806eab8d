// The tools of raw conversations: packets spelled out, a receiver that keeps its state, a link that
// swallows, a foreign program.

import { type AddressInfo, createServer, type Server, type Socket } from "node:net";
import mqttPacket from "mqtt-packet";
import { afterEach, describe, expect, test } from "vitest";
import { BreakableLink } from "../../support/breakable-link.ts";
import { runProgram, startProgram } from "../../support/child-process.ts";
import {
  bytes,
  connect,
  packet,
  publish,
  publish5,
  pubrel,
  subscribe5,
  varint,
} from "../../support/mqtt-bytes.ts";
import { numbers, publishNumbered, Receiver, waitUntil } from "../../support/numbered-run.ts";
import { RawClient } from "../../support/raw-client.ts";

let server: Server | undefined;
const sockets: Socket[] = [];
afterEach(() => {
  for (const socket of sockets.splice(0)) socket.destroy();
  server?.close();
});

function listen(serve: (socket: Socket) => void): Promise<number> {
  return new Promise((resolve) => {
    const opened = createServer((socket) => {
      sockets.push(socket);
      socket.on("error", () => undefined);
      serve(socket);
    });
    server = opened;
    opened.listen(0, "127.0.0.1", () => resolve((opened.address() as AddressInfo).port));
  });
}

describe("packets spelled out", () => {
  test("are what an independent encoder writes", () => {
    const generate = (fields: object, protocolVersion: number): Buffer =>
      mqttPacket.generate(fields as mqttPacket.Packet, { protocolVersion });
    for (const level of [4, 5]) {
      const fields = { cmd: "connect", clientId: "raw", clean: true, keepalive: 0 };
      const sent = { ...fields, protocolId: "MQTT", protocolVersion: level };
      expect(connect({ level: level as 4 | 5 })).toEqual(generate(sent, level));
    }
    const message = { cmd: "publish", topic: "a/b", payload: "x", dup: false, retain: true };
    expect(publish("a/b", "x", { qos: 1, id: 300, retain: true })).toEqual(
      generate({ ...message, qos: 1, messageId: 300 }, 4),
    );
    expect(publish5("a/b", "x", { retain: true })).toEqual(generate({ ...message, qos: 0 }, 5));
    const subscriptions = [{ topic: "a/#", qos: 1, nl: false, rap: false, rh: 0 }];
    expect(subscribe5(7, [["a/#", 1]])).toEqual(
      generate({ cmd: "subscribe", messageId: 7, subscriptions }, 5),
    );
  });

  test("have a remaining length of as many bytes as it needs", () => {
    expect(varint(127)).toEqual(bytes("7f"));
    expect(varint(128)).toEqual(bytes("8001"));
    expect(varint(268_435_455)).toEqual(bytes("ffffff7f"));
    expect(packet("30", Buffer.alloc(200)).length).toBe(203);
  });
});

describe("a raw client that is refused", () => {
  test("expects the reason of MQTT 5 and the end", async () => {
    const port = await listen((socket) => socket.end(bytes("e0 01 82")));
    await (await RawClient.open(port, 5)).expectRefused(0x82);
    const other = await RawClient.open(port, 5);
    await expect(other.expectRefused(0x81)).rejects.toThrow("expected e0 81");
    const old = await RawClient.open(port, 4);
    await expect(old.expectRefused(0x82)).rejects.toThrow("expected nothing");
  });

  test("tells silence from a packet and from the end", async () => {
    const quiet = await RawClient.open(await listen(() => undefined), 4);
    await quiet.expectSilence(20);
    server?.close();
    const loud = await RawClient.open(await listen((socket) => socket.write(bytes("d000"))), 4);
    await expect(loud.expectSilence(2000)).rejects.toThrow("in a silence");
    server?.close();
    const ended = await RawClient.open(await listen((socket) => socket.end()), 4);
    await expect(ended.expectSilence(2000)).rejects.toThrow("ended in a silence");
  });
});

describe("a receiver", () => {
  test("answers, counts an exchange at QoS 2 once, and keeps that over connections", async () => {
    const heard: string[] = [];
    let connection = 0;
    const port = await listen((socket) => {
      connection++;
      socket.on("data", (data) => heard.push(data.toString("hex")));
      const again = publish("t", "two", { qos: 2, id: 2, dup: connection > 1 });
      socket.write(bytes(publish("t", "one", { qos: 1, id: 1, dup: connection > 1 }), again));
      if (connection > 1) socket.write(bytes(pubrel(2), publish("t", "three", { qos: 2, id: 2 })));
    });
    const receiver = new Receiver();
    receiver.attach(await RawClient.open(port, 4));
    await receiver.until(2);
    receiver.attach(await RawClient.open(port, 4));
    await receiver.until(3);
    const told = receiver.arrivals.map(
      ({ text, qos, dup, isRepeat }) => `${text} ${qos} ${dup} ${isRepeat}`,
    );
    expect(told).toEqual([
      "one 1 false false",
      "two 2 false false",
      "one 1 true false",
      "two 2 true true",
      "three 2 false false",
    ]);
    expect(receiver.texts()).toEqual(["one", "two", "three"]);
    const answers = "400200015002000240020001500200027002000250020002";
    await waitUntil(
      () => heard.join("").length >= answers.length,
      2000,
      () => heard.join(),
    );
    expect(heard.join("")).toBe(answers);
    await expect(receiver.until(4, 30)).rejects.toThrow("3 of 4");
  });
});

test("numbered messages keep to their window and are done when all are acked", async () => {
  let unacked = 0;
  let most = 0;
  const texts: string[] = [];
  const port = await listen((socket) => {
    let rest = Buffer.alloc(0);
    socket.on("data", (data) => {
      rest = Buffer.concat([rest, data]);
      while (rest.length >= 2 && rest.length >= 2 + (rest[1] as number)) {
        const frame = rest.subarray(0, 2 + (rest[1] as number));
        rest = rest.subarray(frame.length);
        unacked++;
        most = Math.max(most, unacked);
        texts.push(frame.subarray(7).toString());
        setImmediate(() => {
          unacked--;
          socket.write(bytes("4002", frame.subarray(5, 7)));
        });
      }
    });
  });
  const client = await RawClient.open(port, 4);
  await publishNumbered(client, { topic: "t", count: 25, window: 4, first: 3 });
  expect(texts).toEqual(numbers(3, 27));
  expect(most).toBeLessThanOrEqual(4);
});

test("a broken link swallows what is sent and tells nobody; a new one works", async () => {
  const heard: string[] = [];
  const port = await listen((socket) => socket.on("data", (data) => heard.push(data.toString())));
  await using link = await BreakableLink.open(port);
  const before = await RawClient.open(link.port, 4);
  before.send(Buffer.from("before"));
  await waitUntil(
    () => heard.length === 1,
    2000,
    () => "nothing passed",
  );
  link.swallow();
  before.send(Buffer.from("swallowed"));
  const after = await RawClient.open(link.port, 4);
  after.send(Buffer.from("after"));
  await waitUntil(
    () => heard.length === 2,
    2000,
    () => "nothing passed a new link",
  );
  expect(heard).toEqual(["before", "after"]);
  await before.expectSilence(20);
  await before.close();
  await after.close();
});

test("a program is fed, read line by line, and its failure says what it printed", async () => {
  expect(await runProgram("cat", [], "one\ntwo\n")).toBe("one\ntwo\n");
  await expect(runProgram("sh", ["-c", "echo why >&2; exit 3"])).rejects.toThrow(/with 3: why/);
  const program = startProgram("sh", ["-c", "echo begun; exec sleep 60"]);
  await program.until("begun");
  await expect(program.until("never", 30)).rejects.toThrow("did not print never");
  expect(await program.kill("SIGTERM")).toBe(-1);
});
