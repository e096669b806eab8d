import { describe, expect, test } from "vitest";
import { parseRuleFile } from "../../../src/broker/acl/rule-file.ts";
import { AuthChain, type AuthMethod, RuleAccess } from "../../../src/broker/index.ts";
import { BrokerWorld } from "../../support/broker-world.ts";
import { publishing } from "../../support/raw-mqtt.ts";

const durable = { properties: { sessionExpiryS: 3600 } };
const everything = "everyone\ntopic readwrite #\n";

/** The user is the user name. */
const trusting: AuthMethod = {
  name: "trusting",
  authenticate: ({ userName: user }) => ({ kind: "allow", identity: { user, method: "trusting" } }),
};

async function ruled(rules: string, options = {}) {
  const access = new RuleAccess({ hasLoginRights: false });
  access.setRules("rule_file", parseRuleFile(rules));
  const auth = new AuthChain([trusting]);
  const world = await BrokerWorld.start({ access, auth, ...options });
  const change = (text: string): void => access.setRules("rule_file", parseRuleFile(text));
  return { world, change };
}

describe("rights are asked for on every way", () => {
  test("publish at every QoS, retained too, by alias and in 3.1.1", async () => {
    const { world } = await ruled("everyone\ntopic read #\ntopic write open/#\n");
    const s = await world.connect("s", durable);
    s.subscribe("#", { qos: 2 });
    const p = await world.connect("p");
    const old = await world.connect("old", { level: 4, cleanStart: true });
    await world.advance(100);
    s.take();
    p.say(
      publishing("shut", "0", { qos: 0 }),
      publishing("shut", "1", { qos: 1, id: 1, retain: true }),
      publishing("shut", "2", { qos: 2, id: 2 }),
      publishing("shut/alias", "3", { qos: 1, id: 3, properties: { topicAlias: 1 } }),
      publishing("", "4", { qos: 1, id: 4, properties: { topicAlias: 1 } }),
      publishing("open/x", "5", { qos: 0 }),
    );
    old.publish("shut", "6", { qos: 1, id: 1 });
    await world.advance(200);
    expect(p.take()).toEqual([
      ...["puback #1 0x87", "pubrec #2 0x87"],
      ...["puback #3 0x87", "puback #4 0x87"],
    ]);
    expect(old.take()).toEqual(["puback #1"]);
    expect(s.take()).toEqual(["publish open/x 5 q0"]);
    const late = await world.connect("late");
    late.subscribe("shut");
    await world.advance(100);
    expect(late.take()).toEqual(["suback #1 0x01"]);
  });

  test("R120: a will, when it is given and when it is published", async () => {
    const { world, change } = await ruled(
      "everyone\ntopic read #\ntopic write will/%u\n" + "pattern write will/%c\n",
    );
    const s = await world.connect("s");
    s.subscribe("#");
    const will = (topic: string) => ({
      will: { topic, payload: Buffer.from("gone"), qos: 1 as const, retain: true, properties: {} },
    });
    const refused = await world.dial();
    refused.connect("a", will("will/b"));
    await world.advance();
    expect([refused.take(), refused.isClosed]).toEqual([["connack 0x87"], true]);
    const c = await world.connect("c", will("will/c"));
    change("everyone\ntopic read #\n");
    c.drop();
    await world.advance(200);
    expect(s.take()).toEqual(["suback #1 0x01"]);
    expect(world.broker.counters.willsDenied).toBe(1);
  });

  test("R121: retained messages, live ones and a backlog stop with the right to read them", async () => {
    const { world, change } = await ruled(everything);
    const s = await world.connect("s", durable);
    s.subscribe("t/#", { qos: 1 });
    const p = await world.connect("p");
    await world.advance(100);
    p.publish("t/1", "live", { id: 1, retain: true });
    await world.advance(200);
    expect(s.take()).toEqual(["suback #1 0x01", "publish t/1 live q1 #1"]);
    s.ack("puback", 1);
    change("everyone\ntopic readwrite #\ntopic deny secret\nuser s\n");
    s.drop();
    await world.advance(200);
    p.publish("t/1", "one", { id: 2 }).publish("t/2", "two", { id: 3 });
    await world.advance(200);
    change("everyone\ntopic write #\ntopic read t/2\n");
    const again = await world.connect("s", durable);
    await world.advance(300);
    expect(again.take()).toEqual([
      "connack 0x00 present",
      expect.stringMatching(/^publish t\/2 two q1 #\d$/),
    ]);
    again.subscribe("t/1", {}, 7);
    await world.advance(100);
    expect(again.take()).toEqual(["suback #7 0x87"]);
    expect(world.broker.counters.deliveriesDenied).toBeGreaterThan(0);
  });

  test("a subscription needs a rule that covers it, $share by its inner filter", async () => {
    const { world } = await ruled("everyone\ntopic read a/#\ntopic deny a/x/#\n");
    const c = await world.connect("c", durable);
    const codes = async (filter: string, id: number) => {
      c.subscribe(filter, {}, id);
      await world.advance(100);
      return c.take()[0]?.split(" ")[2];
    };
    expect(await codes("a/#", 1)).toBe("0x01");
    expect(await codes("a/+/b", 2)).toBe("0x01");
    expect(await codes("a/x/y", 3)).toBe("0x87");
    expect(await codes("#", 4)).toBe("0x87");
    expect(await codes("+/b", 5)).toBe("0x87");
    // R125
    expect(await codes("$share/g/a/b", 6)).toBe("0x01");
    expect(await codes("$share/g/b/c", 7)).toBe("0x87");
    expect(await codes("$share/a/#", 8)).toBe("0x87");
  });

  test("what one may not read is denied message by message inside a filter that one may", async () => {
    const { world } = await ruled(
      "everyone\ntopic readwrite a/#\ntopic deny a/x\nuser root\ntopic #\n",
    );
    const c = await world.connect("c");
    c.subscribe("a/#", { qos: 0 });
    const p = await world.connect("p", { userName: "root" });
    await world.advance();
    p.publish("a/y", "1", { qos: 0 }).publish("a/z", "2", { qos: 0 });
    await world.advance();
    expect(c.take().slice(1)).toEqual(["publish a/y 1 q0", "publish a/z 2 q0"]);
  });

  test("what a shared member may not read goes to one who may, live and from the backlog", async () => {
    const may = "everyone\ntopic readwrite #\n";
    const { world, change } = await ruled(may);
    const members = [await world.connect("low", durable), await world.connect("high", durable)];
    const [low, high] = members as [(typeof members)[0], (typeof members)[0]];
    for (const member of members) member.subscribe("$share/g/t/#", { qos: 1 });
    const p = await world.connect("p");
    await world.advance(100);
    for (const member of members) member.take();
    change(`${may}client low\ntopic deny t/secret\n`);
    for (let id = 1; id <= 6; id++) p.publish("t/secret", `${id}`, { id });
    await world.advance(300);
    expect(low.take()).toEqual([]);
    expect(high.take().map((line) => line.split(" ")[2])).toEqual(["1", "2", "3", "4", "5", "6"]);
    high.drop();
    await world.advance(100);
    for (let id = 7; id <= 9; id++) p.publish("t/secret", `${id}`, { id });
    await world.advance(300);
    expect(low.take()).toEqual([]);
  });

  test("what was sent and not acked does not come again behind the loss of the right", async () => {
    const { world, change } = await ruled(everything);
    const s = await world.connect("s", durable);
    s.subscribe("t", { qos: 1 });
    const p = await world.connect("p");
    await world.advance(100);
    p.publish("t", "sent", { id: 1 });
    await world.advance(200);
    expect(s.take().at(-1)).toBe("publish t sent q1 #1");
    s.drop();
    await world.advance(200);
    change("everyone\ntopic write #\n");
    const again = await world.connect("s", durable);
    await world.advance(300);
    expect(again.take()).toEqual(["connack 0x00 present"]);
  });

  test("new rules hold for the next message and disconnect nobody", async () => {
    const { world, change } = await ruled(everything);
    const s = await world.connect("s");
    s.subscribe("t", { qos: 0 });
    const p = await world.connect("p");
    await world.advance();
    s.take();
    p.publish("t", "1", { qos: 0 });
    await world.advance();
    change("everyone\ntopic write #\n");
    p.publish("t", "2", { qos: 0 });
    await world.advance();
    change(everything);
    p.publish("t", "3", { qos: 0 });
    await world.advance();
    expect(s.take()).toEqual(["publish t 1 q0", "publish t 3 q0"]);
    expect([s.isClosed, p.isClosed]).toEqual([false, false]);
  });
});
