// Session state, keep alive and DISCONNECT.

import { describe, expect, test } from "vitest";
import { sharedBroker } from "../support/launched-broker.ts";
import {
  bytes,
  connect,
  field,
  puback,
  pubcomp,
  publish,
  publish5,
  pubrec,
  pubrel,
  subscribe4,
  subscribe5,
  u32,
} from "../support/mqtt-bytes.ts";
import type { ProtocolLevel, RawClient } from "../support/raw-client.ts";

const broker = sharedBroker(["--set", "mqtt.sessionExpiryMax=1h"]);

/** CONNECT with Session Expiry in seconds; MQTT 5 only. */
function expiring(clientId: string, expiryS: number, clean = false): Buffer {
  return connect({ clientId, clean, properties: `11 ${u32(expiryS).toString("hex")}` });
}

/** Session Present of a connection that resumes if it can; the client stays open. */
async function open(sent: Uint8Array): Promise<{ client: RawClient; present: boolean }> {
  const client = await broker().raw(sent[8] === 5 ? 5 : 4);
  client.send(sent);
  const connack = await client.expect("connack");
  return { client, present: connack.sessionPresent };
}

/** Publishes at QoS 1 as somebody else, acked. */
async function publishOne(topic: string, payload: string): Promise<void> {
  const { client } = await broker().connect("session publisher", { level: 4 });
  client.send(publish(topic, payload, { qos: 1, id: 1 }));
  await client.expect("puback");
  await client.close();
}

async function leave(client: RawClient): Promise<void> {
  client.send("e000");
  await client.expectClosed();
}

describe("session state", () => {
  test.each([4, 5] as const)(
    "[3.1.2-4] [311:3.1.2-6] Clean Start 1 discards subscriptions, queue, inflight and QoS 2 ids: %s",
    async (level) => {
      const topic = `discard/${level}`;
      const clientId = `discard ${level}`;
      const { client } = await broker().resume(clientId, { level });
      client.send(level === 5 ? subscribe5(1, [[topic, 2]]) : subscribe4(1, [[topic, 2]]));
      await client.expect("suback");
      const own = publish("elsewhere", "x", { qos: 2, id: 9, ...(level === 5 && p5) });
      client.send(own);
      await client.expect("pubrec");
      await publishOne(topic, "in flight");
      await client.expect("publish");
      await client.close();
      await publishOne(topic, "queued");
      const { client: fresh, connack } = await broker().connect(clientId, { level });
      expect(connack.sessionPresent).toBe(false);
      await publishOne(topic, "no subscription");
      // The identifier is new again: 0x92 says that it is not known.
      fresh.send(pubrel(9));
      await fresh.expectBytes(level === 5 ? "70 03 0009 92" : "70 02 0009");
      await fresh.expectNothing();
    },
  );

  const p5 = { properties: "" };

  test.each([4, 5] as const)(
    "[3.1.2-5] [3.1.2-6] Clean Start 0 makes a session or goes on with it: %s",
    async (level) => {
      const clientId = `resumes ${level}`;
      const first = await broker().resume(clientId, { level });
      expect(first.connack.sessionPresent).toBe(false);
      await leave(first.client);
      const second = await broker().resume(clientId, { level });
      expect(second.connack.sessionPresent).toBe(true);
    },
  );

  test("[3.1.2-23] absent or 0 the session ends with its connection", async () => {
    for (const sent of [connect({ clientId: "ends", clean: false }), expiring("ends", 0)]) {
      const { client, present } = await open(sent);
      expect(present).toBe(false);
      await leave(client);
    }
    expect((await open(expiring("ends", 60))).present).toBe(false);
  });

  test("[3.1.2-23] 0xFFFFFFFF is as long as the broker keeps sessions, and it says so", async () => {
    const { client } = await broker().connect("for ever", { clean: false, expiryS: 0xffffffff });
    await client.close();
    const again = await broker().connect("for ever", { clean: false, expiryS: 0xffffffff });
    expect(again.connack.sessionPresent).toBe(true);
    expect(again.connack.properties?.sessionExpiryInterval).toBe(3600);
    const shorter = await broker().connect("for ever", { clean: false, expiryS: 60 });
    expect(shorter.connack.properties?.sessionExpiryInterval).toBeUndefined();
  });

  test("3.1.1: a clean session ends with its connection, the other one does not expire", async () => {
    const clean = await open(connect({ level: 4, clientId: "v4", clean: true }));
    await leave(clean.client);
    const kept = await open(connect({ level: 4, clientId: "v4", clean: false }));
    expect(kept.present).toBe(false);
    await leave(kept.client);
    expect((await open(connect({ level: 4, clientId: "v4", clean: false }))).present).toBe(true);
  });

  describe.each([4, 5] as const)("Session Present of level %i", (level) => {
    // What was there before CONNECT, and what Clean Start 0 is told; Clean Start 1 is told 0 always.
    const lasting = { level, clean: false } as const;
    const before: ReadonlyArray<readonly [string, boolean, (id: string) => Promise<void>]> = [
      ["nothing", false, async () => undefined],
      [
        "a session in use",
        true,
        async (id) => {
          await broker().connect(id, lasting);
        },
      ],
      [
        "a session left with DISCONNECT",
        true,
        async (id) => leave((await broker().connect(id, lasting)).client),
      ],
      [
        "a session cut off",
        true,
        async (id) => (await broker().connect(id, lasting)).client.close(),
      ],
      [
        "a session that ended with its connection",
        false,
        async (id) => leave((await broker().connect(id, { level, clean: true })).client),
      ],
      [
        "one in use that ends with its connection",
        false,
        async (id) => {
          await broker().connect(id, { level, clean: true });
        },
      ],
      [
        "a lasting session that was discarded",
        false,
        async (id) => {
          await (await broker().connect(id, lasting)).client.close();
          await leave((await broker().connect(id, { level, clean: true })).client);
        },
      ],
    ];

    test.each(before)("[3.2.2-2] [3.2.2-3] before: %s", async (name, isPresent, prepare) => {
      for (const clean of [false, true]) {
        const id = `present ${level} ${name} ${clean}`;
        await prepare(id);
        const { connack } = await broker().connect(id, { level, clean, expiryS: 60 });
        expect(connack.sessionPresent).toBe(isPresent && !clean);
      }
    });
  });

  test("[3.2.2-2] resumed with Session Expiry 0, a session ends with that connection", async () => {
    const id = "present once more";
    await leave((await broker().resume(id)).client);
    const { client, connack } = await broker().connect(id, { clean: false, expiryS: 0 });
    expect(connack.sessionPresent).toBe(true);
    await client.close();
    expect((await broker().resume(id)).connack.sessionPresent).toBe(false);
  });

  test("a session goes on across protocol versions", async () => {
    const { client } = await broker().resume("both", { level: 4 });
    client.send(subscribe4(1, [["both", 1]]));
    await client.expect("suback");
    await leave(client);
    await publishOne("both", "x");
    const five = await broker().resume("both", { level: 5 });
    expect(five.connack.sessionPresent).toBe(true);
    await five.client.expectBytes(publish5("both", "x", { qos: 1, id: 1 }));
  });

  test("DISCONNECT may change Session Expiry", async () => {
    const first = await open(expiring("changed", 60));
    first.client.send("e0 07 00 05 11 00000000");
    await first.client.expectClosed();
    expect((await open(expiring("changed", 60))).present).toBe(false);
  });

  test("DISCONNECT that makes it more than 0 where CONNECT said 0: protocol error 0x82", async () => {
    const { client } = await open(expiring("from 0", 0, true));
    client.send("e0 07 00 05 11 0000003c");
    await client.expectRefused(0x82);
  });

  test("[4.1.0-1] the state of a live connection outlives its expiry", async () => {
    const { client } = await open(expiring("alive", 1));
    client.send(subscribe5(1, [["alive", 1]]));
    await client.expect("suback");
    await client.expectSilence(1500);
    await publishOne("alive", "x");
    await client.expectBytes(publish5("alive", "x", { qos: 1, id: 1 }));
  });

  test("[4.1.0-2] the state goes when it has expired, counted from the close", async () => {
    const { client } = await open(expiring("expires", 1));
    await leave(client);
    const early = await open(expiring("expires", 1));
    expect(early.present).toBe(true);
    await leave(early.client);
    await new Promise((resolve) => setTimeout(resolve, 2500));
    expect((await open(expiring("expires", 1))).present).toBe(false);
  });

  test("[4.5.0-1] a message enters every matching session, connected or not", async () => {
    const away = await broker().resume("away", { level: 4 });
    away.client.send(subscribe4(1, [["every/+", 1]]));
    await away.client.expect("suback");
    await leave(away.client);
    const here = await broker().resume("here", { level: 4 });
    here.client.send(subscribe4(1, [["every/#", 1]]));
    await here.client.expect("suback");
    await publishOne("every/1", "x");
    await here.client.expectBytes(publish("every/1", "x", { qos: 1, id: 1 }));
    const back = await broker().resume("away", { level: 4 });
    await back.client.expectBytes(publish("every/1", "x", { qos: 1, id: 1 }));
  });
});

describe("keep alive", () => {
  test("[3.1.2-22] [311:3.1.2-24] silence of 1.5 times it ends the connection, the will applies", async () => {
    const { client: watch } = await broker().connect("ka watch", { level: 4 });
    watch.send(subscribe4(1, [["ka/+", 0]]));
    await watch.expect("suback");
    const silent = [4, 5].map(async (each) => {
      const level = each as 4 | 5;
      const client = await broker().raw(level);
      const rest = [level === 5 ? "00" : "", field(`ka/${level}`), field("gone")];
      client.send(connect({ level, clientId: `ka ${level}`, keepAliveS: 1, flags: 0x06, rest }));
      await client.expect("connack");
      const started = performance.now();
      await client.expectRefused(0x8d);
      expect(performance.now() - started).toBeGreaterThan(1400);
    });
    await Promise.all(silent);
    const wills = [await watch.expect("publish"), await watch.expect("publish")];
    expect(wills.map(({ topic }) => topic).sort()).toEqual(["ka/4", "ka/5"]);
  });

  test("[3.1.2-22] a packet that never completes is no sign of life, PINGREQ is", async () => {
    const trickle = await broker().raw(4);
    trickle.send(connect({ level: 4, clientId: "trickle", keepAliveS: 1 }));
    await trickle.expect("connack");
    const ping = await broker().raw(4);
    ping.send(connect({ level: 4, clientId: "ping", keepAliveS: 1 }));
    await ping.expect("connack");
    trickle.send("30 20 0001 61");
    for (let n = 0; n < 5; n++) {
      await new Promise((resolve) => setTimeout(resolve, 500));
      if (!trickle.isClosed) trickle.send("78");
      await ping.expectNothing();
    }
    expect(trickle.isClosed).toBe(true);
  });

  test("keep alive 0 turns it off", async () => {
    const { client } = await broker().connect("ka 0", { connect: { keepalive: 0 } });
    await client.expectSilence(1000);
    await client.expectNothing();
  });

  test("[3.12.4-1] a PINGRESP for each PINGREQ", async () => {
    const { client } = await broker().connect("pings", { level: 4 });
    client.send("c000 c000 c000");
    for (let n = 0; n < 3; n++) await client.expectBytes("d0 00");
    await client.expectNothing();
  });
});

describe("DISCONNECT", () => {
  test("[3.14.0-1] none before a successful CONNACK", async () => {
    const client = await broker().raw(5);
    client.send(connect({ properties: "21 0000" }));
    const types = (await client.expectClosed()).map((frame) => frame.type);
    expect(types).toEqual([2]);
  });

  test("[3.14.1-1] reserved flags are malformed: 0x81", async () => {
    const { client } = await broker().connect("flags");
    client.send("e2 00");
    await client.expectRefused(0x81);
  });

  test.each(["8e", "8b", "9d", "87", "01", "ff"])(
    "[3.14.2-1] a reason that clients do not have is refused: %s",
    async (code) => {
      const { client } = await broker().connect("reasons");
      client.send(`e0 01 ${code}`);
      const [answer] = await client.expectClosed();
      expect(answer?.type).toBe(14);
      expect([0x81, 0x82]).toContain(answer?.bytes[2]);
    },
  );

  test.each(["e000", "e00100", "e0020000"])(
    "[3.14.4-1] [3.14.4-2] the broker closes behind it and sends nothing: %s",
    async (sent) => {
      const { client } = await broker().connect("leaves");
      client.send(bytes(sent, "c000", publish5("after", "x", { qos: 1, id: 1 })));
      expect(await client.expectClosed()).toEqual([]);
    },
  );

  test.each([
    ["malformed", "30 8000", 0x81],
    ["protocol error", "d000", 0x82],
  ] as const)(
    "[4.13.1-1] [4.13.2-1] [311:4.8.0-1] a fault ends the connection; only MQTT 5 hears why: %s",
    async (_name, sent, reason) => {
      for (const level of [5, 4, 3] as ProtocolLevel[]) {
        const { client } = await broker().connect("faulty", { level });
        client.send(sent);
        await client.expectRefused(reason);
      }
    },
  );

  test("[3.14.2-2] what the broker says has no Session Expiry: whatever the fault", async () => {
    for (const fault of ["f2 00", "c1 00", "36 00", "82 00", "10 00", "30 03 0001 2b", "e0 00"]) {
      const { client } = await broker().connect("no expiry", { clean: false });
      client.send(fault);
      for (const { packet } of await client.expectClosed()) {
        expect(
          packet?.cmd === "disconnect" && packet.properties?.sessionExpiryInterval,
        ).toBeFalsy();
      }
    }
  });

  test("DISCONNECT of 3.1.1 has no body", async () => {
    const { client } = await broker().connect("body", { level: 4 });
    client.send("e0 01 00");
    await client.expectRefused(0x81);
  });
});

describe("what was begun before the connection ended", () => {
  test.each([4, 5] as const)(
    "[4.4.0-1] [3.3.1-1] [4.6.0-1] resent with DUP and its identifier, in order: %s",
    async (level) => {
      const five = level === 5 ? { properties: "" } : {};
      const clientId = `begun ${level}`;
      const topic = `begun/${level}`;
      const { client } = await broker().resume(clientId, { level });
      client.send(level === 5 ? subscribe5(1, [[topic, 2]]) : subscribe4(1, [[topic, 2]]));
      await client.expect("suback");
      const { client: publisher } = await broker().connect("begun publisher", { level: 4 });
      for (const [index, qos] of ([1, 2, 2, 1, 1] as const).entries()) {
        publisher.send(publish(topic, `m${index + 1}`, { qos, id: index + 1 }));
        await publisher.expect(qos === 1 ? "puback" : "pubrec");
        if (qos === 2) publisher.send(pubrel(index + 1));
        if (qos === 2) await publisher.expect("pubcomp");
        await client.expect("publish");
      }
      // 2 reaches PUBREL, 4 is done, the others wait for their first answer.
      client.send(pubrec(2));
      await client.expectBytes(pubrel(2));
      client.send(puback(4));
      await client.expectNothing();
      client.drop();
      const { client: again } = await broker().resume(clientId, { level });
      const frames: string[] = [];
      for (let n = 0; n < 4; n++) frames.push((await again.next()).bytes.toString("hex"));
      const resent = (id: number, qos: 1 | 2): string =>
        publish(topic, `m${id}`, { qos, id, dup: true, ...five }).toString("hex");
      expect(frames).toEqual([pubrel(2).toString("hex"), resent(1, 1), resent(3, 2), resent(5, 1)]);
      again.send(bytes(pubcomp(2), puback(1), pubrec(3), puback(5)));
      await again.expectBytes(pubrel(3));
      again.send(pubcomp(3));
      await again.expectNothing();
      await again.close();
      await new Promise((resolve) => setTimeout(resolve, 300));
      const { client: last } = await broker().resume(clientId, { level });
      await last.expectNothing();
    },
  );

  test("[4.4.0-1] nothing is resent on an open connection", async () => {
    const { client } = await broker().resume("patient", { level: 4 });
    client.send(subscribe4(1, [["patient", 2]]));
    await client.expect("suback");
    await publishOne("patient", "x");
    await client.expect("publish");
    await client.expectSilence(1000);
  });

  test("subscription options and identifier belong to the session", async () => {
    const { client } = await broker().resume("options");
    // No Local, Retain As Published, QoS 1, identifier 7.
    client.send(subscribe5(1, [["options", 0x0d]], "0b 07"));
    await client.expect("suback");
    await leave(client);
    const { client: again } = await broker().resume("options");
    again.send(publish5("options", "own", { qos: 1, id: 1 }));
    await again.expect("puback");
    const { client: other } = await broker().connect("options other");
    other.send(publish5("options", "kept", { qos: 1, id: 1, retain: true }));
    await other.expect("puback");
    const wanted = { qos: 1, id: 1, retain: true, properties: "0b 07" } as const;
    await again.expectBytes(publish5("options", "kept", wanted));
    await again.expectNothing();
  });
});
