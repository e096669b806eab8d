// PUBLISH, the QoS flows, order, forwarded properties and expiry.

import { describe, expect, test } from "vitest";
import { sharedBroker } from "../support/launched-broker.ts";
import {
  bytes,
  field,
  packet,
  properties,
  puback,
  pubcomp,
  publish,
  publish5,
  pubrec,
  pubrel,
  subscribe4,
  subscribe5,
  u16,
} from "../support/mqtt-bytes.ts";
import type { ProtocolLevel, RawClient } from "../support/raw-client.ts";

const broker = sharedBroker();
const malformed = 0x81;
const protocolError = 0x82;

async function connected(clientId: string, level: ProtocolLevel = 4): Promise<RawClient> {
  return (await broker().connect(clientId, { level })).client;
}

async function subscribed(filter: string, qos: 0 | 1 | 2, level: 4 | 5 = 4): Promise<RawClient> {
  const client = await connected("subscriber", level);
  client.send(level === 5 ? subscribe5(1, [[filter, qos]]) : subscribe4(1, [[filter, qos]]));
  await client.expect("suback");
  return client;
}

/** A durable one, for what passes through the store. */
async function durable(filter: string, qos: 0 | 1 | 2, level: 4 | 5 = 4): Promise<RawClient> {
  const { client } = await broker().connect(`durable ${filter}`, { level, clean: false });
  client.send(level === 5 ? subscribe5(1, [[filter, qos]]) : subscribe4(1, [[filter, qos]]));
  await client.expect("suback");
  return client;
}

const kinds = [
  ["direct", subscribed],
  ["durable", durable],
] as const;

describe("PUBLISH", () => {
  test("[3.3.1-2] DUP with QoS 0 is malformed", async () => {
    for (const level of [5, 4] as const) {
      const client = await connected("p", level);
      client.send(packet("38", field("a"), level === 5 ? "00" : "", "78"));
      await client.expectRefused(malformed);
    }
  });

  test("[3.3.1-4] QoS 3 is malformed", async () => {
    for (const level of [5, 4] as const) {
      const client = await connected("p", level);
      client.send(packet("36", field("a"), "0001", level === 5 ? "00" : "", "78"));
      await client.expectRefused(malformed);
    }
  });

  test.each(kinds)(
    "[3.3.1-3] outgoing DUP does not depend on the incoming one: %s",
    async (n, s) => {
      const subscriber = await s(`dup/${n}`, 1);
      const client = await connected("p");
      client.send(publish(`dup/${n}`, "x", { qos: 1, id: 5, dup: true }));
      await client.expectBytes(puback(5));
      await subscriber.expectBytes(publish(`dup/${n}`, "x", { qos: 1, id: 1 }));
    },
  );

  test("[3.3.2-1] [4.7.3-1] an empty topic name is refused", async () => {
    for (const [level, sent] of [
      [5, publish5("", "x")],
      [4, publish("", "x")],
    ] as const) {
      const client = await connected("p", level);
      client.send(sent);
      const frames = await client.expectClosed();
      if (level === 5) expect([malformed, protocolError]).toContain(frames[0]?.bytes[2]);
      else expect(frames).toEqual([]);
    }
  });

  test.each(["a/+", "#", "a/b+", "+/x"])(
    "[3.3.2-2] a wildcard in a topic name ends the connection: %s",
    async (topic) => {
      const four = await connected("p", 4);
      four.send(publish(topic, "x"));
      await four.expectRefused(0);
      const five = await connected("p", 5);
      five.send(publish5(topic, "x"));
      const [answer] = await five.expectClosed();
      expect([malformed, protocolError, 0x90]).toContain(answer?.bytes[2]);
    },
  );

  test("[3.3.4-6] a Subscription Identifier from a client is a protocol error", async () => {
    const client = await connected("p", 5);
    client.send(publish5("a", "x", { properties: "0b 01" }));
    await client.expectRefused(protocolError);
  });

  test("a bad PUBLISH ends its sender, subscribers do not notice", async () => {
    const subscriber = await subscribed("bad/#", 0, 5);
    for (const props of ["1100000001", "210001", "12000161", "1f000161"]) {
      const client = await connected("p", 5);
      client.send(publish5("bad/x", "x", { properties: props }));
      expect((await client.expectClosed())[0]?.type).toBe(14);
    }
    await subscriber.expectNothing();
  });
});

describe("QoS 0", () => {
  test.each(kinds)("[4.3.1-1] no ack, and delivered once: %s", async (name, subscribe) => {
    const subscriber = await subscribe(`q0/${name}`, 2);
    const client = await connected("p");
    client.send(publish(`q0/${name}`, "x"));
    await client.expectNothing();
    await subscriber.expectBytes(publish(`q0/${name}`, "x"));
    await subscriber.expectNothing();
  });
});

describe("QoS 1", () => {
  test.each(kinds)(
    "[4.3.2-4] [4.3.2-5] PUBACK, then its id is free: %s",
    async (name, subscribe) => {
      const topic = `q1/${name}`;
      const subscriber = await subscribe(topic, 0);
      const client = await connected("p");
      for (const payload of ["x", "y", "z"]) {
        client.send(publish(topic, payload, { qos: 1, id: 1 }));
        await client.expectBytes(puback(1));
        await subscriber.expectBytes(publish(topic, payload));
      }
      await client.expectNothing();
    },
  );

  test.each(kinds)(
    "[4.3.2-1..3] unused identifiers, kept until PUBACK: %s",
    async (name, subscribe) => {
      const topic = `ids/${name}`;
      const subscriber = await subscribe(topic, 1);
      const client = await connected("p");
      const seen: number[] = [];
      for (let n = 1; n <= 5; n++) {
        client.send(publish(topic, `${n}`, { qos: 1, id: n }));
        await client.expect("puback");
        seen.push((await subscriber.expect("publish")).messageId ?? 0);
      }
      expect(seen).toEqual([1, 2, 3, 4, 5]);
      subscriber.send(puback(3));
      client.send(publish(topic, "6", { qos: 1, id: 6 }));
      await client.expect("puback");
      // Identifiers roll on; 3 is free but not due.
      await subscriber.expectBytes(publish(topic, "6", { qos: 1, id: 6 }));
    },
  );

  test("[3.3.4-1] PUBACK says when nobody matched, in MQTT 5", async () => {
    const five = await connected("p", 5);
    five.send(publish5("nobody/here", "x", { qos: 1, id: 1 }));
    await five.expectBytes("40 03 0001 10");
    const four = await connected("p4", 4);
    four.send(publish("nobody/here", "x", { qos: 1, id: 1 }));
    await four.expectBytes("40 02 0001");
  });

  test("[311:3.3.5-2] [3.3.4-1] without rights: 0x87 in MQTT 5, a plain ack in 3.1.1", async () => {
    const five = await connected("p", 5);
    five.send(publish5("$SYS/forged", "x", { qos: 1, id: 1 }));
    const { bytes: answer } = await five.next();
    expect(answer.subarray(2, 5)).toEqual(bytes("0001 87"));
    await five.expectNothing();
    const four = await connected("p4", 4);
    four.send(publish("$SYS/forged", "x", { qos: 1, id: 1 }));
    await four.expectBytes("40 02 0001");
  });

  test("[4.4.0-2] PUBACK with a failure ends the exchange", async () => {
    const subscriber = await durable("nack/1", 1, 5);
    const client = await connected("p");
    client.send(publish("nack/1", "x", { qos: 1, id: 1 }));
    await client.expect("puback");
    await subscriber.expect("publish");
    subscriber.send("40 03 0001 80");
    await subscriber.expectNothing();
    await subscriber.close();
    const { client: again } = await broker().resume("durable nack/1");
    await again.expectNothing();
  });
});

describe("QoS 2 from a client", () => {
  test.each(kinds)(
    "[4.3.3-8..10] [4.3.3-12] PUBREC; until PUBREL the same id is a repeat: %s",
    async (name, subscribe) => {
      const topic = `q2/${name}`;
      const subscriber = await subscribe(topic, 0);
      for (const clean of [true, false]) {
        const { client } = await broker().connect("q2 publisher", { level: 4, clean });
        client.send(publish(topic, "x", { qos: 2, id: 7 }));
        await client.expectBytes(pubrec(7));
        client.send(publish(topic, "x", { qos: 2, id: 7, dup: true }));
        await client.expectBytes(pubrec(7));
        // DUP never decides whether a message is new.
        client.send(publish(topic, "x", { qos: 2, id: 7 }));
        await client.expectBytes(pubrec(7));
        client.send(pubrel(7));
        await client.expectBytes(pubcomp(7));
        client.send(publish(topic, "y", { qos: 2, id: 7, dup: true }));
        await client.expectBytes(pubrec(7));
        client.send(pubrel(7));
        await client.expectBytes(pubcomp(7));
        await subscriber.expectBytes(publish(topic, "x"));
        await subscriber.expectBytes(publish(topic, "y"));
        await subscriber.expectNothing();
      }
    },
  );

  test("[4.3.3-11] PUBREL of an unknown id: PUBCOMP, 0x92 in MQTT 5", async () => {
    const five = await connected("p", 5);
    five.send(pubrel(9));
    await five.expectBytes("70 03 0009 92");
    const four = await connected("p4", 4);
    four.send(pubrel(9));
    await four.expectBytes(pubcomp(9));
    await four.expectNothing();
  });

  test("identifiers of QoS 1 and 2 of one client do not disturb each other's flow", async () => {
    const subscriber = await subscribed("mixed", 0);
    const client = await connected("p");
    client.send(
      bytes(
        publish("mixed", "a", { qos: 2, id: 1 }),
        publish("mixed", "b", { qos: 1, id: 2 }),
        publish("mixed", "c", { qos: 2, id: 3 }),
        pubrel(1),
      ),
    );
    await client.expectBytes(pubrec(1));
    await client.expectBytes(puback(2));
    await client.expectBytes(pubrec(3));
    await client.expectBytes(pubcomp(1));
    for (const payload of "abc") await subscriber.expectBytes(publish("mixed", payload));
  });

  test("[3.6.1-1] PUBREL has flags 0010", async () => {
    const client = await connected("p");
    client.send(publish("q2/flags", "x", { qos: 2, id: 1 }));
    await client.expectBytes(pubrec(1));
    client.send(packet("60", u16(1)));
    await client.expectRefused(malformed);
  });
});

describe("QoS 2 to a client", () => {
  test.each(kinds)(
    "[4.3.3-1..7] PUBREC, PUBREL, PUBCOMP; the id is kept to PUBCOMP: %s",
    async (name, subscribe) => {
      const topic = `out2/${name}`;
      const subscriber = await subscribe(topic, 2);
      const client = await connected("p");
      client.send(publish(topic, "x", { qos: 2, id: 1 }));
      await client.expect("pubrec");
      await subscriber.expectBytes(publish(topic, "x", { qos: 2, id: 1 }));
      subscriber.send(pubrec(1));
      await subscriber.expectBytes(pubrel(1));
      // A repeat of PUBREC is answered with PUBREL again.
      subscriber.send(pubrec(1));
      await subscriber.expectBytes(pubrel(1));
      subscriber.send(pubcomp(1));
      await subscriber.expectNothing();
    },
  );

  test.each(kinds)(
    "PUBREC with a failure ends it, no PUBREL follows: %s",
    async (name, subscribe) => {
      const topic = `nack2/${name}`;
      const subscriber = await subscribe(topic, 2, 5);
      const client = await connected("p");
      client.send(publish(topic, "x", { qos: 2, id: 1 }));
      await client.expect("pubrec");
      await subscriber.expect("publish");
      subscriber.send("50 03 0001 97");
      await subscriber.expectNothing();
    },
  );

  test.each(kinds)(
    "PUBREC of an unknown id: PUBREL 0x92 in MQTT 5: %s",
    async (name, subscribe) => {
      const five = await subscribe(`unknown/${name}`, 2, 5);
      five.send(pubrec(77));
      await five.expectBytes("62 03 004d 92");
      const four = await subscribe(`unknown4/${name}`, 2, 4);
      four.send(pubrec(77));
      await four.expectBytes(pubrel(77));
    },
  );

  test.each(["direct", "durable"])("an ack for the wrong stage ends it, 0x82: %s", async (name) => {
    const client = await connected("p");
    const topic = `stage/${name}`;
    for (const [qos, ack] of [
      [1, pubrec(1)],
      [1, pubcomp(1)],
      [2, puback(1)],
      [2, pubcomp(1)],
    ] as const) {
      const { client: subscriber } = await broker().connect(`stage ${name}`, {
        clean: name === "direct",
      });
      subscriber.send(subscribe5(1, [[`${topic}/${qos}`, qos]]));
      await subscriber.expect("suback");
      client.send(publish(`${topic}/${qos}`, "x", { qos: 1, id: 1 }));
      await client.expect("puback");
      client.send(publish(`${topic}/${qos}`, "x", { qos: 2, id: 2 }));
      await client.expect("pubrec");
      client.send(pubrel(2));
      await client.expect("pubcomp");
      const ids: Record<number, number> = {};
      for (let n = 0; n < 2; n++) {
        const got = await subscriber.expect("publish");
        ids[got.qos] = got.messageId as number;
      }
      const id = ids[qos] as number;
      subscriber.send(packet((ack[0] as number).toString(16), u16(id)));
      await subscriber.expectRefused(protocolError);
      await (await broker().connect(`stage ${name}`)).client.close();
    }
  });
});

describe("order", () => {
  test.each(kinds)(
    "[4.6.0-5] [4.6.0-6] per topic and QoS as published, live: %s",
    async (name, subscribe) => {
      const topic = `order/${name}`;
      const subscriber = await subscribe(topic, 1);
      const client = await connected("p");
      const all = Array.from({ length: 200 }, (_, n) =>
        publish(topic, `${n}`, { qos: 1, id: n + 1 }),
      );
      client.send(bytes(...all));
      for (let n = 0; n < 200; n++) {
        expect((await subscriber.expect("publish")).payload.toString()).toBe(`${n}`);
      }
      for (let n = 0; n < 200; n++) await client.expectBytes(puback(n + 1));
    },
  );

  test("[4.6.0-6] per topic and QoS as published, from the queue", async () => {
    const away = await durable("order/queue", 2);
    await away.close();
    const client = await connected("p");
    for (let n = 0; n < 50; n++) {
      client.send(publish("order/queue", `${n}`, { qos: n % 2 === 0 ? 1 : 2, id: n + 1 }));
    }
    for (let n = 0; n < 50; n++) await client.next();
    const { client: back } = await broker().resume("durable order/queue", { level: 4 });
    for (let n = 0; n < 50; n++) {
      expect((await back.expect("publish")).payload.toString()).toBe(`${n}`);
    }
  });

  test("[4.6.0-2] [4.6.0-3] PUBACK and PUBREC in the order of their PUBLISHes", async () => {
    await durable("stored/#", 1);
    const client = await connected("p");
    // Stored and unmatched messages finish at different times.
    const sent = Array.from({ length: 50 }, (_, n) => {
      const topic = n % 3 === 0 ? "stored/x" : "unmatched";
      return publish(topic, "x", { qos: n % 2 === 0 ? 1 : 2, id: n + 1 });
    });
    client.send(bytes(...sent));
    for (let n = 0; n < 50; n++) {
      await client.expectBytes(n % 2 === 0 ? puback(n + 1) : pubrec(n + 1));
    }
  });

  test("[4.6.0-4] PUBREL in the order of the PUBRECs", async () => {
    const subscriber = await durable("rels", 2);
    const client = await connected("p");
    for (let n = 1; n <= 5; n++) client.send(publish("rels", `${n}`, { qos: 2, id: n }));
    for (let n = 1; n <= 5; n++) await subscriber.expect("publish");
    subscriber.send(bytes(...[3, 1, 5, 2, 4].map(pubrec)));
    for (const id of [3, 1, 5, 2, 4]) await subscriber.expectBytes(pubrel(id));
  });

  test("the ack of a message leaves before its copy to the same client", async () => {
    for (const clean of [true, false]) {
      const { client } = await broker().connect(`loop ${clean}`, { level: 4, clean });
      client.send(subscribe4(1, [["loop", 1]]));
      await client.expect("suback");
      client.send(publish("loop", "x", { qos: 1, id: 9 }));
      await client.expectBytes(puback(9));
      await client.expectBytes(publish("loop", "x", { qos: 1, id: 1 }));
      client.send(publish("loop", "y", { qos: 2, id: 10 }));
      await client.expectBytes(pubrec(10));
      await client.expectBytes(publish("loop", "y", { qos: 1, id: 2 }));
      await client.close();
    }
  });
});

describe("forwarded", () => {
  // Payload Format, Content Type, Response Topic, Correlation Data, then user properties with a
  // repeat, in an order of their own.
  const forwarded =
    "26 0001 7a 0001 31 01 01 03 0002 6a73 26 0001 61 0001 32 " +
    "08 0003 722f31 09 0002 00ff 26 0001 7a 0001 31";

  test.each(kinds)(
    "[3.3.2-4] [3.3.2-15] [3.3.2-16] [3.3.2-17] [3.3.2-18] [3.3.2-20] unaltered, in order: %s",
    async (name, subscribe) => {
      const subscriber = await subscribe(`fwd/${name}`, 1, 5);
      const client = await connected("p", 5);
      const sent = publish5(`fwd/${name}`, "x", { qos: 1, id: 1, properties: forwarded });
      client.send(sent);
      await client.expect("puback");
      await subscriber.expectBytes(sent);
    },
  );

  test("[3.3.2-17] [3.3.2-18] unaltered, in order, where something of the broker's is added", async () => {
    const { client: subscriber } = await broker().connect("fwd adds", {
      connect: { properties: { topicAliasMaximum: 5 } },
    });
    subscriber.send(subscribe5(1, [["fwd/adds", 1]], "0b 07"));
    await subscriber.expect("suback");
    const client = await connected("p", 5);
    for (const id of [1, 2]) {
      client.send(publish5("fwd/adds", "x", { qos: 1, id, properties: forwarded }));
      await client.expect("puback");
      const properties = `${forwarded} 23 0001 0b 07`;
      const topic = id === 1 ? "fwd/adds" : "";
      await subscriber.expectBytes(publish5(topic, "x", { qos: 1, id, properties }));
    }
  });

  test("3.1.1 clients get the message without properties, MQTT 5 clients with an empty list", async () => {
    const four = await durable("cross/4", 1, 4);
    const five = await durable("cross/5", 1, 5);
    const from5 = await connected("p", 5);
    from5.send(publish5("cross/4", "x", { qos: 1, id: 1, properties: forwarded }));
    await four.expectBytes(publish("cross/4", "x", { qos: 1, id: 1 }));
    const from4 = await connected("p4", 4);
    from4.send(publish("cross/5", "x", { qos: 1, id: 1 }));
    await five.expectBytes(publish5("cross/5", "x", { qos: 1, id: 1 }));
  });

  test.each(["722f2b", "722f23"])(
    "[3.3.2-14] a Response Topic with a wildcard is a protocol error: %s",
    async (hex) => {
      const client = await connected("p", 5);
      client.send(publish5("a", "x", { properties: `08 0003 ${hex}` }));
      await client.expectRefused(protocolError);
    },
  );

  test("[3.3.2-5] [3.3.2-6] expired before its delivery it is dropped; else the rest of the time is sent", async () => {
    const away = await durable("expiry/#", 1, 5);
    await away.close();
    const client = await connected("p", 5);
    client.send(publish5("expiry/short", "x", { qos: 1, id: 1, properties: "02 00000001" }));
    await client.expect("puback");
    client.send(publish5("expiry/long", "x", { qos: 1, id: 2, properties: "02 0000003c" }));
    await client.expect("puback");
    await new Promise((resolve) => setTimeout(resolve, 1500));
    const { client: back } = await broker().resume("durable expiry/#");
    const got = await back.expect("publish");
    expect(got.topic).toBe("expiry/long");
    const left = got.properties?.messageExpiryInterval ?? 0;
    expect(left).toBeGreaterThanOrEqual(57);
    expect(left).toBeLessThanOrEqual(59);
    await back.expectNothing();
  });

  test("[4.3.3-7] [4.3.3-13] a QoS 2 exchange that has begun is finished, expired or not", async () => {
    const subscriber = await durable("forward/begun", 2, 5);
    const client = await connected("p", 5);
    const expiry = "02 00000001";
    client.send(publish5("forward/begun", "x", { qos: 2, id: 5, properties: expiry }));
    await client.expectBytes(pubrec(5));
    await subscriber.expect("publish");
    await Promise.all([client.expectSilence(1100), subscriber.expectSilence(1100)]);
    client.send(publish5("forward/begun", "x", { qos: 2, id: 5, dup: true, properties: expiry }));
    await client.expectBytes(pubrec(5));
    client.send(pubrel(5));
    await client.expectBytes(pubcomp(5));
    subscriber.send(pubrec(1));
    await subscriber.expectBytes(pubrel(1));
    subscriber.send(pubcomp(1));
    await subscriber.expectNothing();
  });

  test("an expiry of 0 does not outlive its delivery", async () => {
    const away = await durable("expiry0", 1, 5);
    await away.close();
    const client = await connected("p", 5);
    client.send(publish5("expiry0", "x", { qos: 1, id: 1, properties: "02 00000000" }));
    await client.expect("puback");
    const { client: back } = await broker().resume("durable expiry0");
    await back.expectNothing();
  });

  test("[3.3.2-3] the delivered topic is the published one and matches the subscription", async () => {
    const subscriber = await subscribed("a/+/c", 0);
    const client = await connected("p");
    for (const topic of ["a/b/c", "a/b", "a//c", "a/b/c/d", "a/x/c"]) {
      client.send(publish(topic, "x"));
    }
    for (const topic of ["a/b/c", "a//c", "a/x/c"]) {
      await subscriber.expectBytes(publish(topic, "x"));
    }
    await subscriber.expectNothing();
  });
});

describe("Payload Format", () => {
  test("a payload that is not the UTF-8 it says is forwarded or refused with 0x99, no more", async () => {
    const client = await connected("p", 5);
    const props = properties("01 01");
    client.send(packet("32", field("format"), "0001", props, "ff"));
    const { bytes: answer } = await client.next();
    expect([0x00, 0x10, 0x99, undefined]).toContain(answer[4]);
    await client.expectNothing();
  });
});
