// Who may enter: names and passwords, and enhanced authentication with SCRAM-SHA-256.

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { launcherPath } from "../support/broker-process.ts";
import { runProgram } from "../support/child-process.ts";
import { LaunchedBroker } from "../support/launched-broker.ts";
import { connect, field, packet, properties, publish5, subscribe5 } from "../support/mqtt-bytes.ts";
import type { RawClient } from "../support/raw-client.ts";
import { scramFinal, scramFirst } from "../support/scram-client.ts";

const method = "SCRAM-SHA-256";
const user = "alice";
const password = "battery staple";
const notAuthorised = 0x87;

let dir = "";
let broker: LaunchedBroker;
let serial = 0;

beforeAll(async () => {
  dir = mkdtempSync(join(tmpdir(), "flagstone-auth-"));
  const users = join(dir, "users.txt");
  const secret = join(dir, "secret");
  writeFileSync(secret, `${password}\n`, { mode: 0o600 });
  const add = [launcherPath(), "user", "add", user, "--file", users, "--scram"];
  await runProgram("sh", ["-c", `exec "$0" "$@" < ${secret}`, process.execPath, ...add]);
  broker = await LaunchedBroker.open([
    ...["--set", "authentication.chain=[password_file]"],
    ...["--set", `authentication.passwordFile=${users}`],
    ...["--set", "mqtt.preAuthTime=2s"],
  ]);
});
afterAll(async () => {
  await broker[Symbol.asyncDispose]();
  rmSync(dir, { recursive: true, force: true });
});

/** Properties of AUTH and CONNECT: the method and data. */
function methodAnd(data: string | undefined, name = method): Buffer[] {
  const both = [Buffer.from([0x15]), field(name)];
  return data === undefined ? both : [...both, Buffer.from([0x16]), field(data)];
}

function auth(reasonCode: "18" | "19", data: string | undefined, name = method): Buffer {
  return packet("f0", reasonCode, properties(...methodAnd(data, name)));
}

type Began = { readonly client: RawClient; readonly first: string; readonly challenge: string };

/** CONNECT with the first message; resolves with the challenge of AUTH 0x18. */
async function begin(): Promise<Began> {
  serial++;
  const client = await broker.raw();
  const first = scramFirst(user, `nonce${serial}`);
  client.send(
    connect({
      clientId: `auth ${serial}`,
      properties: Buffer.concat(methodAnd(first)).toString("hex"),
    }),
  );
  return { client, first, challenge: await challengeOf(client) };
}

async function challengeOf(client: RawClient): Promise<string> {
  const { packet: answer } = await client.next();
  if (answer?.cmd !== "auth") throw new Error(`${answer?.cmd} where AUTH was expected`);
  expect([answer.reasonCode, answer.properties?.authenticationMethod]).toEqual([0x18, method]);
  return String(answer.properties?.authenticationData);
}

/** The whole exchange; resolves with the accepted client. */
async function enter(): Promise<RawClient> {
  const { client, first, challenge } = await begin();
  const { message, serverSignature } = scramFinal(first, challenge, password);
  client.send(auth("18", message));
  const { reasonCode, properties: told } = await client.expect("connack");
  expect([reasonCode, told?.authenticationMethod]).toEqual([0, method]);
  expect(String(told?.authenticationData)).toBe(`v=${serverSignature}`);
  return client;
}

describe("names and passwords", () => {
  test("[3.1.4-2] a login that fails is refused: 0x86, in 3.1.1 0x04 or 0x05; then the end", async () => {
    for (const [level, codes] of [
      [5, [0x86, notAuthorised]],
      [4, [0x04, 0x05]],
    ] as const) {
      for (const [flags, rest] of [
        [0xc2, [field(user), field("wrong")]],
        [0xc2, [field("nobody"), field(password)]],
        [0x82, [field(user)]],
        [0x02, []],
      ] as const) {
        const client = await broker.raw(level);
        client.send(connect({ level, clientId: "login", flags, rest }));
        const frames = await client.expectClosed();
        expect(frames).toHaveLength(1);
        expect(frames[0]?.bytes[2]).toBe(0);
        expect(codes).toContain(frames[0]?.bytes[3]);
      }
      const client = await broker.raw(level);
      const rest = [field(user), field(password)];
      client.send(connect({ level, clientId: "login", flags: 0xc2, rest }));
      expect((await client.next()).bytes[3]).toBe(0);
    }
  });

  test("[3.1.4-6] what is pipelined behind a login that fails does not take effect", async () => {
    const watch = await enter();
    watch.send(subscribe5(1, [["auth/sneak", 0]]));
    await watch.expect("suback");
    const client = await broker.raw();
    const refused = connect({ flags: 0xc2, rest: [field(user), field("wrong")] });
    client.send(Buffer.concat([refused, publish5("auth/sneak", "x")]));
    await client.expectClosed();
    await watch.expectNothing();
  });
});

describe("enhanced authentication", () => {
  test("[4.12.0-2] [4.12.0-5] AUTH 0x18 rounds with the method of CONNECT, which CONNACK repeats", async () => {
    const client = await enter();
    client.send(publish5("auth/in", "x", { qos: 1, id: 1 }));
    await client.expect("puback");
  });

  test("[4.12.0-4] a wrong proof is refused in CONNACK, then the end", async () => {
    const { client, first, challenge } = await begin();
    client.send(auth("18", scramFinal(first, challenge, "wrong").message));
    const frames = await client.expectClosed();
    expect(frames.map(({ type }) => type)).toEqual([2]);
    expect([0x86, notAuthorised]).toContain(frames[0]?.bytes[3]);
  });

  test("[4.12.0-5] AUTH with another method, or of the wrong reason, is a protocol error", async () => {
    for (const sent of [auth("18", "x", "OTHER"), auth("19", "x"), packet("f0", "18 00")]) {
      const { client } = await begin();
      client.send(sent);
      const [connack] = await client.expectClosed();
      expect([connack?.bytes[0], connack?.bytes[3]]).toEqual([0x20, 0x82]);
    }
  });

  test("nothing but AUTH and DISCONNECT may come before CONNACK", async () => {
    const { client } = await begin();
    client.send(publish5("auth/early", "x"));
    const [connack] = await client.expectClosed();
    expect([connack?.bytes[0], connack?.bytes[3]]).toEqual([0x20, 0x82]);
    const leaving = await begin();
    leaving.client.send("e000");
    expect(await leaving.client.expectClosed()).toEqual([]);
  });

  test("an answer that does not come in time ends it", async () => {
    const { client } = await begin();
    for (const { type } of await client.expectClosed(4000)) expect(type).toBe(2);
  });

  test("[4.12.1-1] re-authentication with the same method, while messages go on", async () => {
    const client = await enter();
    client.send(subscribe5(1, [["auth/loop", 0]]));
    await client.expect("suback");
    const first = scramFirst(user, "again");
    client.send(Buffer.concat([auth("19", first), publish5("auth/loop", "during")]));
    const frames = [await client.next(), await client.next()];
    expect(frames.map(({ type }) => type).sort()).toEqual([15, 3]);
    const challenge = frames.find(({ type }) => type === 15)?.packet;
    const data = challenge?.cmd === "auth" && challenge.properties?.authenticationData;
    client.send(auth("18", scramFinal(first, String(data), password).message));
    const { packet: done } = await client.next();
    expect(done?.cmd === "auth" && (done.reasonCode ?? 0)).toBe(0);
    await client.expectNothing();
    const other = await enter();
    other.send(auth("19", "x", "OTHER"));
    await other.expectRefused(0x82);
  });

  test("[4.12.1-2] a re-authentication that fails ends the connection", async () => {
    const client = await enter();
    const first = scramFirst(user, "failing");
    client.send(auth("19", first));
    const challenge = await challengeOf(client);
    client.send(auth("18", scramFinal(first, challenge, "wrong").message));
    const [answer] = await client.expectClosed();
    expect([answer?.type, answer?.bytes[2]]).toEqual([14, notAuthorised]);
  });
});
