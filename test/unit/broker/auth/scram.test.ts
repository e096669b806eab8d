import { describe, expect, test } from "vitest";
import { SeededRandom } from "../../../../src/base/index.ts";
import { hashForScram, hashPassword } from "../../../../src/broker/auth/password-hash.ts";
import { SwappedUsers } from "../../../../src/broker/auth/password-method.ts";
import { scramMethod } from "../../../../src/broker/auth/scram.ts";
import type { Exchange, ExchangeStep } from "../../../../src/broker/index.ts";
import { loginRequest } from "../../../support/login-request.ts";
import { scramFinal, scramFirst } from "../../../support/scram-client.ts";

const random = new SeededRandom(3);

/** Hashing is slow on purpose. */
const records = new Map([
  ["user", await hashForScram(Buffer.from("pencil"), random)],
  ["a,b=c", await hashForScram(Buffer.from("pencil"), random)],
  ["plain", await hashPassword(Buffer.from("pencil"), random)],
]);

async function exchange(): Promise<Exchange> {
  const users = new SwappedUsers(records);
  return scramMethod(users, random).begin(loginRequest({}));
}

async function run(user: string, password: string, header = "n,,") {
  const one = await exchange();
  const first = scramFirst(user, "fyko+d2lbbFgONRv9qkxdawL", header);
  const challenge = (await one.step(Buffer.from(first))) as ExchangeStep;
  if (challenge.kind !== "continue") return { challenge, last: challenge, serverSignature: "" };
  const final = scramFinal(first, challenge.data.toString(), password);
  const last = await one.step(Buffer.from(final.message));
  return { challenge, last, serverSignature: final.serverSignature };
}

describe("SCRAM-SHA-256", () => {
  test("who knows the password is in, and hears that the broker knows it", async () => {
    for (const user of ["user", "a,b=c"]) {
      const { last, serverSignature } = await run(user, "pencil");
      expect(last).toMatchObject({ kind: "done", identity: { user, method: "SCRAM-SHA-256" } });
      expect(last.kind === "done" && last.data?.toString()).toBe(`v=${serverSignature}`);
    }
  });

  test("a wrong password, an unknown name and a name without a verifier fail alike", async () => {
    for (const [user, password] of [
      ["user", "pencils"],
      ["nobody", "pencil"],
      ["plain", "pencil"],
    ] as const) {
      const { challenge, last } = await run(user, password);
      expect(challenge.kind === "continue" && challenge.data.toString()).toMatch(/,i=15000$/);
      expect(last).toEqual({ kind: "failed", why: "SCRAM: wrong password" });
    }
  });

  test("an unknown name has the same salt each time", async () => {
    const users = new SwappedUsers(new Map());
    const method = scramMethod(users, random);
    const salts = await Promise.all(
      [1, 2].map(async () => {
        const step = await method.begin(loginRequest({})).step(Buffer.from("n,,n=x,r=abc"));
        return step.kind === "continue" && /s=([^,]+)/.exec(step.data.toString())?.[1];
      }),
    );
    expect(salts[0]).toBe(salts[1]);
  });

  test("the first message may come with the second packet", async () => {
    const one = await exchange();
    expect(await one.step(undefined)).toEqual({ kind: "continue", data: Buffer.alloc(0) });
    const idle = await exchange();
    await idle.step(undefined);
    expect(await idle.step(undefined)).toMatchObject({ kind: "failed", why: "SCRAM: no data" });
    expect(await one.step(Buffer.from("n,,n=user,r=abc"))).toMatchObject({ kind: "continue" });
  });

  test.each([
    "",
    "n,,n=user",
    "n,,r=abc,n=user",
    "p=tls-unique,,n=user,r=abc",
    "n,a=other,n=user,r=abc",
    "n,,m=ext,n=user,r=abc",
    "n,,n=us=er,r=abc",
    "n,,n=user,r=a c",
    `n,,n=${"u".repeat(5000)},r=abc`,
  ])("%j is no first message", async (text) => {
    expect(await (await exchange()).step(Buffer.from(text))).toMatchObject({ kind: "failed" });
  });

  test.each([
    ["another nonce", (text: string) => text.replace(/r=[^,]+/, "r=fyko")],
    ["another binding", (text: string) => text.replace("c=biws", "c=eSws")],
    ["no proof", (text: string) => text.replace(/,p=.*/, "")],
    ["a short proof", (text: string) => text.replace(/,p=.*/, ",p=AAAA")],
    ["nothing", () => ""],
  ])("%s in the final message fails", async (_name, change) => {
    const one = await exchange();
    const first = scramFirst("user", "fyko", "n,,");
    const step = await one.step(Buffer.from(first));
    const challenge = step.kind === "continue" ? step.data.toString() : "";
    const { message } = scramFinal(first, challenge, "pencil");
    expect(await one.step(Buffer.from(change(message)))).toMatchObject({ kind: "failed" });
  });

  test.each(["c=biws,r=fyko", "c=eSws,r={nonce}", "c=biws,r={nonce}x", "c=biws,r={nonce},x=1"])(
    "%s is refused also when it is signed well",
    async (said) => {
      const one = await exchange();
      const first = scramFirst("user", "fyko", "n,,");
      const step = await one.step(Buffer.from(first));
      const challenge = step.kind === "continue" ? step.data.toString() : "";
      const nonce = /^r=([^,]+)/.exec(challenge)?.[1] ?? "";
      const final = (text?: string) => scramFinal(first, challenge, "pencil", text).message;
      const wrong = final(said.replace("{nonce}", nonce));
      expect(await one.step(Buffer.from(wrong))).toMatchObject({ kind: "failed" });
    },
  );

  test("the client of these tests computes what RFC 7677 shows", () => {
    const first = "n,,n=user,r=rOprNGfwEbeRWgbNEkqO";
    const challenge =
      "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";
    const { message, serverSignature } = scramFinal(first, challenge, "pencil");
    expect(message).toMatch(/,p=dHzbZapWIk4jUhN\+Ute9ytag9zjfMHgsqmmiz7AndVQ=$/);
    expect(serverSignature).toBe("6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=");
  });
});
