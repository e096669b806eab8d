import { describe, expect, test } from "vitest";
import { SeededRandom, SimClock } from "../../../../src/base/index.ts";
import {
  LoginThrottle,
  ThrottledAuth,
  throttleSettingsDefault,
} from "../../../../src/broker/auth/throttle.ts";
import type { AuthPort, LoginRequest, Verdict } from "../../../../src/broker/index.ts";

const settings = { ...throttleSettingsDefault, failedPerNameMax: 3, failedPerAddressMax: 6 };

/** Alice's word is "right"; every question is counted. */
class Door implements AuthPort {
  asked = 0;
  readonly clock = new SimClock();
  readonly throttle: LoginThrottle;

  constructor(changed: Partial<typeof settings> = {}) {
    this.throttle = new LoginThrottle({ ...settings, ...changed }, this.clock, new SeededRandom(1));
  }

  authenticate({ userName, password }: LoginRequest): Verdict {
    this.asked++;
    const isRight = userName === "alice" && password?.toString() === "right";
    if (!isRight) return { kind: "deny", why: "wrong" };
    return { kind: "allow", identity: { user: userName, method: "door" } };
  }

  begin() {
    return { step: () => ({ kind: "failed", why: "wrong" }) as const };
  }

  isCurrent(): boolean {
    return true;
  }

  /** One connection with one login. */
  try(userName: string | undefined, password: string | undefined, host = "10.0.0.1"): string {
    const request = {
      ...{ clientId: "c", userName, certificate: undefined, listener: "tcp" },
      password: password === undefined ? undefined : Buffer.from(password),
      remote: `${host}:50000`,
    };
    return (new ThrottledAuth(this.throttle, this).authenticate(request) as Verdict).kind;
  }
}

describe("after too many wrong logins", () => {
  test("of a name from an address nobody is asked any more, until the minute is over", async () => {
    const door = new Door();
    const words = ["a", "b", "c", "d", "right"].map((word) => door.try("alice", word));
    expect(words).toEqual(["deny", "deny", "deny", "held", "held"]);
    expect(door.asked).toBe(3);
    await door.clock.advance(59_999);
    expect(door.try("alice", "right")).toBe("held");
    await door.clock.advance(1);
    expect(door.try("alice", "right")).toBe("allow");
  });

  test("the same name elsewhere and other names at that address get in", () => {
    const door = new Door();
    for (let n = 0; n < 4; n++) door.try("mallory", "guess");
    for (let n = 0; n < 4; n++) door.try("alice", "guess", "10.0.0.2");
    expect(door.try("alice", "right")).toBe("allow");
    expect(door.try("alice", "right", "10.0.0.2")).toBe("held");
    expect(door.try("alice", "right", "[2001:db8::1]")).toBe("allow");
  });

  test("of many names the address is held, with its whole /64", () => {
    const door = new Door();
    for (let n = 0; n < 6; n++) door.try(`user-${n}`, "guess", `[2001:db8::${n + 1}]`);
    expect(door.try("alice", "right", "[2001:db8::ff]")).toBe("held");
    expect(door.try("alice", "right", "[2001:db8:0:1::1]")).toBe("allow");
  });

  test("who was let in from there before still is, with the same word and no other", () => {
    const door = new Door();
    expect(door.try("alice", "right")).toBe("allow");
    for (let n = 0; n < 10; n++) door.try("alice", "guess");
    expect(door.try("alice", "guess")).toBe("held");
    expect(door.try("alice", "right")).toBe("allow");
    for (let n = 0; n < 10; n++) door.try(`user-${n}`, "guess");
    expect(door.try("alice", "right")).toBe("allow");
    expect(door.try("bob", "right")).toBe("held");
  });

  test("a right login ends the count of its name, not that of its address", () => {
    const door = new Door();
    for (let round = 0; round < 3; round++) {
      expect([door.try("alice", "a"), door.try("alice", "b")]).toEqual(["deny", "deny"]);
      expect(door.try("alice", "right")).toBe("allow");
    }
    expect(door.try("bob", "guess")).toBe("held");
  });
});

test("names and addresses that run together are different ones", () => {
  const door = new Door();
  for (let n = 0; n < 3; n++) door.try("1alice", "guess", "10.0.0.1");
  expect(door.try("1alice", "guess", "10.0.0.1")).toBe("held");
  expect(door.try("alice", "right", "10.0.0.11")).toBe("allow");
});

test("who shows nothing is never held and counts nothing", () => {
  const door = new Door();
  for (let n = 0; n < 20; n++) expect(door.try(undefined, undefined)).toBe("deny");
  expect(door.try("alice", "right")).toBe("allow");
  for (let n = 0; n < 20; n++) door.try("bob", "guess");
  expect(door.try(undefined, undefined)).toBe("deny");
});

test("without limits nothing is held", () => {
  const door = new Door({ failedPerNameMax: Infinity, failedPerAddressMax: Infinity });
  for (let n = 0; n < 200; n++) expect(door.try("alice", "guess")).toBe("deny");
});

test("exchanges count by address; one of a client that is in goes on", async () => {
  const door = new Door();
  const request = {
    ...{ clientId: "c", userName: undefined, password: undefined, certificate: undefined },
    ...{ remote: "10.0.0.1:50000", listener: "tcp" },
  };
  const guess = async (auth: AuthPort): Promise<string> =>
    (await auth.begin("SCRAM-SHA-256", request)?.step(undefined))?.kind ?? "";
  const done: AuthPort = {
    authenticate: () => ({ kind: "ignore" }),
    begin: () => ({
      step: () => ({ kind: "done", data: undefined, identity: { user: "bob", method: "x" } }),
    }),
    isCurrent: () => true,
  };
  const isIn = new ThrottledAuth(door.throttle, done);
  expect(await guess(isIn)).toBe("done");
  for (let n = 0; n < 6; n++)
    expect(await guess(new ThrottledAuth(door.throttle, door))).toBe("failed");
  expect(await guess(new ThrottledAuth(door.throttle, door))).toBe("held");
  expect(await guess(new ThrottledAuth(door.throttle, done))).toBe("held");
  expect(await guess(isIn)).toBe("done");
});

test("what is remembered is bounded, the one not seen longest goes", () => {
  const door = new Door({ rememberedMax: 10, failedPerAddressMax: Infinity });
  for (let n = 0; n < 3; n++) door.try("alice", "guess");
  expect(door.try("alice", "right")).toBe("held");
  for (let n = 0; n < 10; n++) door.try(`user-${n}`, "guess");
  expect(door.try("alice", "right")).toBe("allow");
});
