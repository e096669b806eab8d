import { describe, expect, test } from "vitest";
import { SeededRandom } from "../../../src/base/index.ts";
import { RuleAccess } from "../../../src/broker/acl/rule-access.ts";
import { hashForScram } from "../../../src/broker/auth/password-hash.ts";
import { SwappedUsers } from "../../../src/broker/auth/password-method.ts";
import { scramMethod } from "../../../src/broker/auth/scram.ts";
import {
  AuthChain,
  type AuthMethod,
  type ExchangeMethod,
  type Identity,
  type Verdict,
} from "../../../src/broker/index.ts";
import { BrokerWorld } from "../../support/broker-world.ts";
import type { RawMqtt } from "../../support/raw-mqtt.ts";
import { scramFinal, scramFirst } from "../../support/scram-client.ts";

const durable = { properties: { sessionExpiryS: 3600 } };

/** A table of user names to passwords; everything may change under way. */
class Table implements AuthMethod {
  readonly name = "table";
  readonly users = new Map<string, string>();
  verdict: ((request: { userName: string | undefined }) => Promise<Verdict>) | undefined;

  authenticate(request: { userName: string | undefined; password: Buffer | undefined }) {
    if (this.verdict !== undefined) return this.verdict(request);
    const { userName = "", password } = request;
    const stored = this.users.get(userName);
    if (stored === undefined) return { kind: "ignore" as const };
    if (stored !== password?.toString()) return { kind: "deny" as const, why: "wrong" };
    return {
      kind: "allow" as const,
      identity: { user: userName, method: "table", proof: stored },
    };
  }

  isCurrent({ user = "", proof }: Identity): boolean {
    return this.users.get(user) === proof;
  }
}

const as = (userName: string, password: string) => ({ userName, password: Buffer.from(password) });

async function tableWorld(options = {}) {
  const table = new Table();
  table.users.set("alice", "a").set("bob", "b");
  const world = await BrokerWorld.start({ auth: new AuthChain([table]), ...options });
  return { table, world };
}

describe("logins", () => {
  test.each([
    ["a wrong password", { userName: "alice", password: Buffer.from("x") }, 5, "connack 0x86"],
    ["a wrong password, 3.1.1", { ...as("alice", "x") }, 4, "connack 0x04"],
    ["an unknown user", as("mallory", "a"), 5, "connack 0x86"],
    ["nothing", {}, 5, "connack 0x87"],
    ["nothing, 3.1.1", {}, 4, "connack 0x05"],
    ["a name without a password", { userName: "alice" }, 5, "connack 0x86"],
  ] as const)("%s is refused and leaves nothing", async (_name, fields, level, answer) => {
    const { world } = await tableWorld();
    const will = { topic: "t", payload: Buffer.from("w"), qos: 1, retain: true, properties: {} };
    const s = await world.connect("s", as("bob", "b"));
    s.subscribe("#");
    const c = await world.dial();
    c.connect("c", { ...fields, level, cleanStart: true, will: { ...will, qos: 1 } });
    await world.advance(100);
    expect([c.take(), c.isClosed]).toEqual([[answer], true]);
    // R120: no will of a client that never got in.
    expect(s.take()).toEqual(["suback #1 0x01"]);
    const lines = JSON.stringify(world.logged);
    expect(lines).toContain("broker.login_refused");
    expect(lines).not.toContain('"x"');
  });

  test("R42: a login that is refused does not touch the session of that client id", async () => {
    const { world } = await tableWorld();
    const first = await world.connect("c", { ...as("alice", "a"), ...durable });
    first.subscribe("t");
    await world.advance();
    for (const fields of [as("alice", "x"), as("mallory", "y"), {}]) {
      const second = await world.dial();
      second.connect("c", { ...fields, ...durable });
      await world.advance(100);
      expect(second.isClosed).toBe(true);
    }
    const p = await world.connect("p", as("bob", "b"));
    p.publish("t", "still here");
    await world.advance(100);
    expect(first.take()).toEqual(["suback #1 0x01", "publish t still here q1 #1"]);
  });

  test("after ten wrong passwords from one address nobody is asked; others go on", async () => {
    const { table, world } = await tableWorld();
    const tryOnce = async (host: string, level: 4 | 5, password: string): Promise<string> => {
      const c = await world.dial(host);
      c.connect("c", { ...as("alice", password), level, cleanStart: true });
      await world.advance(20);
      return c.take()[0] ?? "";
    };
    const answers: string[] = [];
    for (let n = 0; n < 11; n++) answers.push(await tryOnce("guesser", 5, `guess ${n}`));
    expect(answers).toEqual([...Array(10).fill("connack 0x86"), "connack 0x9f"]);
    expect(await tryOnce("guesser", 4, "a")).toBe("connack 0x03");
    expect(await tryOnce("home", 5, "a")).toBe("connack 0x00");
    expect(world.broker.counters).toMatchObject({ clientsBadCredentials: 10, clientsHeld: 2 });
    expect(JSON.stringify(world.logged)).not.toContain("guess 0");
    table.users.set("bob", "b");
    await world.advance(60_000);
    expect(await tryOnce("guesser", 5, "a")).toBe("connack 0x00");
  });

  test("one durable session more than a user may have is 0x97, in 3.1.1 return code 3", async () => {
    const { world } = await tableWorld({ sessions: { sessionsPerUserMax: 1 } });
    await world.connect("one", { ...as("alice", "a"), ...durable });
    const two = await world.dial();
    two.connect("two", { ...as("alice", "a"), ...durable });
    const three = await world.dial();
    three.connect("three", { ...as("alice", "a"), level: 4, cleanStart: false });
    await world.advance(100);
    expect([two.take(), three.take()]).toEqual([["connack 0x97"], ["connack 0x03"]]);
    const again = await world.connect("one", { ...as("alice", "a"), ...durable });
    expect(again.take()).toEqual(["connack 0x00 present"]);
  });

  test("a client id belongs to the user who holds its session, connected, away or in memory", async () => {
    const { world } = await tableWorld();
    const alice = await world.connect("c", { ...as("alice", "a"), ...durable });
    alice.subscribe("t");
    await world.advance();
    const tryBob = async (cleanStart: boolean): Promise<string[]> => {
      const bob = await world.dial();
      bob.connect("c", { ...as("bob", "b"), ...durable, cleanStart });
      await world.advance(100);
      return bob.take();
    };
    expect(await tryBob(false)).toEqual(["connack 0x87"]);
    expect(await tryBob(true)).toEqual(["connack 0x87"]);
    expect(alice.isClosed).toBe(false);
    alice.disconnect();
    await world.advance(100);
    expect(await tryBob(false)).toEqual(["connack 0x87"]);
    expect(await tryBob(true)).toEqual(["connack 0x87"]);
    await world.restart();
    expect(await tryBob(true)).toEqual(["connack 0x87"]);
    const again = await world.connect("c", { ...as("alice", "a"), ...durable });
    expect(again.take()).toEqual(["connack 0x00 present"]);
    const memory = await world.connect("m", as("alice", "a"));
    const other = await world.dial();
    other.connect("m", as("bob", "b"));
    await world.advance(100);
    expect([other.take(), memory.isClosed]).toEqual([["connack 0x87"], false]);
  });

  test("a method that throws, hangs or cannot answer lets nobody in", async () => {
    const { table, world } = await tableWorld();
    const answers: Array<() => Promise<Verdict>> = [
      () => Promise.reject(new Error("secret of the hook")),
      () => Promise.resolve({ kind: "unavailable", why: "down" }),
      () => new Promise(() => undefined),
      () => {
        throw new Error("secret of the hook");
      },
    ];
    for (const answer of answers) {
      table.verdict = answer;
      const c = await world.dial();
      c.connect("c", as("alice", "a"));
      await world.advance(16_000);
      expect([c.take(), c.isClosed]).toEqual([["connack 0x88"], true]);
    }
    expect(JSON.stringify(world.logged)).not.toContain("secret of the hook");
    expect(world.broker.counts().connections).toBe(0);
  });

  test("R41: a client that leaves while its login is decided leaves nothing behind", async () => {
    const { table, world } = await tableWorld();
    const answers: Array<(verdict: Verdict) => void> = [];
    table.verdict = () => new Promise((resolve) => answers.push(resolve));
    const c = await world.dial();
    c.connect("c", { ...as("alice", "a"), ...durable });
    await world.advance();
    c.drop();
    await world.advance();
    answers[0]?.({ kind: "allow", identity: { user: "alice", method: "table" } });
    await world.advance(100);
    expect(world.broker.counts().connections).toBe(0);
    expect(world.broker.sessions.counts()).toEqual({ durable: 0, connected: 0 });
  });

  test("R124: a recheck lets go only whose login is no longer good", async () => {
    const { table, world } = await tableWorld();
    const alice = await world.connect("a", as("alice", "a"));
    const bob = await world.connect("b", as("bob", "b"));
    const old = await world.connect("o", { ...as("bob", "b"), level: 4, cleanStart: true });
    expect(world.broker.recheck()).toBe(0);
    table.users.set("bob", "changed");
    expect(world.broker.recheck()).toBe(2);
    await world.advance(100);
    expect([alice.isClosed, bob.isClosed, old.isClosed]).toEqual([false, true, true]);
    expect(bob.take()).toEqual(["disconnect 0x87"]);
    expect(world.broker.counters.clientsLoginEnded).toBe(2);
  });

  test.each([
    ["none", "", false],
    ["a line end", "alice\nroot", false],
    ["NUL", "alice\0", false],
    ["more than 1,024 bytes", "\u00e9".repeat(513), false],
    ["a colon, a slash and wildcards", "alice:/+#.*", true],
    ["properties of objects", "__proto__", true],
  ])("a user name of %s, told by a token or a service", async (_name, user, isIn) => {
    const { table, world } = await tableWorld();
    table.verdict = async () => ({ kind: "allow", identity: { user, method: "table" } });
    const c = await world.dial();
    c.connect("c", as("x", "y"));
    await world.advance(100);
    expect(c.take()).toEqual([isIn ? "connack 0x00" : "connack 0x86"]);
    const lines = world.events("broker.login_refused");
    expect(lines.length).toBe(isIn ? 0 : 1);
    expect(JSON.stringify(lines)).not.toContain("root");
  });

  test("who was removed while its password was looked at does not get in", async () => {
    const { table, world } = await tableWorld();
    let answer: (verdict: Verdict) => void = () => undefined;
    table.verdict = () => new Promise((resolve) => (answer = resolve));
    const c = await world.dial();
    c.connect("c", as("alice", "a"));
    await world.advance();
    table.users.delete("alice");
    expect(world.broker.recheck()).toBe(0);
    answer({ kind: "allow", identity: { user: "alice", method: "table", proof: "a" } });
    await world.advance();
    expect([c.take(), c.isClosed]).toEqual([["connack 0x86"], true]);
  });

  test("a login ends when its token does, and not a moment before", async () => {
    const { table, world } = await tableWorld();
    const expiresUs = world.clock.wallUs() + 60_000_000;
    table.verdict = async () => ({
      kind: "allow",
      identity: { user: "alice", method: "table", proof: "a", expiresUs },
    });
    const c = await world.connect("c", as("alice", "a"));
    await world.advance(59_800);
    expect(c.isClosed).toBe(false);
    await world.advance(400);
    expect([c.take(), c.isClosed]).toEqual([["disconnect 0x87"], true]);
  });
});

describe("enhanced authentication", () => {
  async function scramWorld(more: readonly ExchangeMethod[] = []) {
    const random = new SeededRandom(5);
    const users = new SwappedUsers(
      new Map([
        ["alice", await hashForScram(Buffer.from("pencil"), random)],
        ["bob", await hashForScram(Buffer.from("eraser"), random)],
      ]),
    );
    const auth = new AuthChain([], [scramMethod(users, random), ...more]);
    return { users, world: await BrokerWorld.start({ auth }) };
  }

  const method = { authenticationMethod: "SCRAM-SHA-256" };

  function challengeOf(c: RawMqtt): string {
    const packet = c.packets.at(-1);
    const isAuth = packet?.type === "auth" && packet.reasonCode === 0x18;
    return (isAuth && packet.properties.authenticationData?.toString()) || "";
  }

  async function login(world: BrokerWorld, user: string, password: string) {
    const c = await world.dial();
    const first = scramFirst(user, "nonce");
    const properties = { ...method, authenticationData: Buffer.from(first) };
    c.connect("c", { properties });
    await world.advance();
    const final = scramFinal(first, challengeOf(c), password);
    const data = Buffer.from(final.message);
    c.say({ type: "auth", reasonCode: 0x18, properties: { ...method, authenticationData: data } });
    await world.advance();
    return { c, final };
  }

  test("SCRAM over AUTH packets: in, with the proof of the broker in CONNACK", async () => {
    const { world } = await scramWorld();
    const { c, final } = await login(world, "alice", "pencil");
    const connack = c.packets.at(-1);
    expect(connack).toMatchObject({
      type: "connack",
      reasonCode: 0,
      properties: {
        authenticationMethod: "SCRAM-SHA-256",
        authenticationData: Buffer.from(`v=${final.serverSignature}`),
      },
    });
    c.publish("t", "x", { qos: 1, id: 9 });
    await world.advance();
    expect(c.lines.at(-1)).toBe("puback #9 0x10");
  });

  test("a wrong password is 0x87, an unknown method 0x8C", async () => {
    const { world } = await scramWorld();
    const { c } = await login(world, "alice", "wrong");
    expect([c.lines.at(-1), c.isClosed]).toEqual(["connack 0x87", true]);
    const other = await world.dial();
    other.connect("d", { properties: { authenticationMethod: "GS2-KRB5" } });
    await world.advance();
    expect([other.take(), other.isClosed]).toEqual([["connack 0x8c"], true]);
  });

  test("re-authentication: as the same user it goes on, otherwise the client is let go", async () => {
    const { world } = await scramWorld();
    const again = async (c: RawMqtt, user: string, password: string) => {
      const first = scramFirst(user, "nonce2");
      const begin = { ...method, authenticationData: Buffer.from(first) };
      c.say({ type: "auth", reasonCode: 0x19, properties: begin });
      await world.advance();
      const { message } = scramFinal(first, challengeOf(c), password);
      const end = { ...method, authenticationData: Buffer.from(message) };
      c.say({ type: "auth", reasonCode: 0x18, properties: end });
      await world.advance();
    };
    const { c } = await login(world, "alice", "pencil");
    c.take();
    await again(c, "alice", "pencil");
    expect([c.packets.at(-1), c.isClosed]).toMatchObject([{ type: "auth", reasonCode: 0 }, false]);
    c.publish("t", "x", { qos: 1, id: 3 });
    await world.advance();
    expect(c.lines.at(-1)).toBe("puback #3 0x10");
    await again(c, "bob", "eraser");
    expect([c.lines.at(-1), c.isClosed]).toEqual(["disconnect 0x87", true]);
    const second = await login(world, "alice", "pencil");
    await again(second.c, "alice", "wrong");
    expect([second.c.lines.at(-1), second.c.isClosed]).toEqual(["disconnect 0x87", true]);
  });

  test("rights that come with a new login replace those of the one before, on every way", async () => {
    let filter = "old/#";
    const token: ExchangeMethod = {
      name: "TOKEN",
      begin: () => ({
        step: () => {
          const grants = [{ effect: "allow" as const, access: "both" as const, filter }];
          const identity = { user: "u", method: "TOKEN", grants };
          return { kind: "done", identity, data: undefined };
        },
      }),
    };
    const auth = new AuthChain([], [token]);
    const access = new RuleAccess({ hasLoginRights: true });
    const world = await BrokerWorld.start({ auth, access });
    const properties = { authenticationMethod: "TOKEN" };
    const p = await world.connect("p", { properties });
    const c = await world.connect("c", { properties });
    c.subscribe("old/#", { qos: 0 });
    await world.advance();
    p.publish("old/x", "1", { qos: 0 });
    await world.advance();
    expect(c.take()).toContain("publish old/x 1 q0");
    filter = "new/#";
    c.say({ type: "auth", reasonCode: 0x19, properties });
    await world.advance();
    expect(c.take()).toEqual(["auth"]);
    p.publish("old/x", "2", { qos: 0 });
    c.publish("old/x", "x", { qos: 1, id: 1 });
    c.publish("new/x", "x", { qos: 1, id: 2 });
    c.subscribe("old/+", { qos: 0 });
    await world.advance();
    const [old, fresh, subscribed, ...rest] = c.take();
    expect([old, fresh, rest]).toEqual(["puback #1 0x87", "puback #2 0x10", []]);
    expect(subscribed).toMatch(/^suback .*0x87/);
  });

  test("other methods hang on the same hook; one that throws lets nobody in", async () => {
    const steps: string[] = [];
    const echo: ExchangeMethod = {
      name: "ECHO",
      begin: ({ clientId }) => ({
        step: (data) => {
          steps.push(data?.toString() ?? "");
          if (steps.length < 3) return { kind: "continue", data: Buffer.from("more") };
          const identity = { user: clientId, method: "ECHO" };
          return { kind: "done", identity, data: undefined };
        },
      }),
    };
    const broken: ExchangeMethod = {
      name: "BROKEN",
      begin: () => ({ step: () => Promise.reject(new Error("no")) }),
    };
    const { world } = await scramWorld([echo, broken]);
    const c = await world.dial();
    const properties = { authenticationMethod: "ECHO" };
    c.connect("c", { properties });
    await world.advance();
    for (const text of ["one", "two"]) {
      const authenticationData = Buffer.from(text);
      c.say({ type: "auth", reasonCode: 0x18, properties: { ...properties, authenticationData } });
      await world.advance();
    }
    expect(steps).toEqual(["", "one", "two"]);
    expect(c.take()).toEqual(["auth", "auth", "connack 0x00"]);
    const b = await world.dial();
    b.connect("b", { properties: { authenticationMethod: "BROKEN" } });
    await world.advance();
    expect([b.take(), b.isClosed]).toEqual([["connack 0x88"], true]);
  });

  test("a client that does not answer its challenge is cut", async () => {
    const { world } = await scramWorld();
    const c = await world.dial();
    c.connect("c", { properties: method });
    await world.advance(11_000);
    expect(c.isClosed).toBe(true);
    expect(world.broker.counts().connections).toBe(0);
  });
});
