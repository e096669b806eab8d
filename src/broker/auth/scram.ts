// SCRAM-SHA-256 (RFC 5802, RFC 7677) as an enhanced authentication method: the password never
// crosses the wire, and the client learns that the broker knows it. Without channel binding: run it
// over TLS all the same.
//
// A name that nobody has gets a salt of its own that stays the same, and fails at the proof like a
// wrong password does: names cannot be told.

import { createHash, createHmac, timingSafeEqual } from "node:crypto";
import type { Random } from "../../base/index.ts";
import { type ScramVerifier, scramIterations } from "./password-hash.ts";
import { isCurrentIn, scramVerifierOf, type Users } from "./password-method.ts";
import type { Exchange, ExchangeMethod, ExchangeStep } from "./types.ts";

export const scramName = "SCRAM-SHA-256";
const nonceBytes = 18;
const messageBytesMax = 4096;

export function scramMethod(users: Users, random: Random): ExchangeMethod {
  const decoyKey = random.bytes(32);
  return {
    name: scramName,
    begin: () => new ScramExchange(users, random.bytes(nonceBytes).toString("base64"), decoyKey),
    isCurrent: (identity) => isCurrentIn(users, identity),
  };
}

type First = {
  readonly user: string;
  readonly bare: string;
  readonly header: string;
  readonly nonce: string;
};

type Challenge = {
  readonly first: First;
  readonly text: string;
  readonly verifier: ScramVerifier;
};

class ScramExchange implements Exchange {
  readonly #users: Users;
  readonly #nonce: string;
  readonly #decoyKey: Buffer;
  #wasAsked = false;
  #challenge: Challenge | undefined;
  #proof: string | undefined;

  constructor(users: Users, nonce: string, decoyKey: Buffer) {
    this.#users = users;
    this.#nonce = nonce;
    this.#decoyKey = decoyKey;
  }

  step(data: Buffer | undefined): ExchangeStep {
    if (data === undefined) {
      // The client may leave its first message to the second packet.
      if (this.#wasAsked || this.#challenge !== undefined) return failed("no data");
      this.#wasAsked = true;
      return { kind: "continue", data: Buffer.alloc(0) };
    }
    if (data.length > messageBytesMax) return failed("a message is too long");
    const text = data.toString("utf8");
    return this.#challenge === undefined ? this.#begin(text) : this.#finish(text, this.#challenge);
  }

  #begin(text: string): ExchangeStep {
    const first = parseFirst(text);
    if (first === undefined) return failed("the first message is malformed");
    const stored = this.#users.find(first.user);
    const verifier = scramVerifierOf(stored);
    this.#proof = verifier === undefined ? undefined : stored;
    const known = verifier ?? this.#decoyOf(first.user);
    const nonce = `${first.nonce}${this.#nonce}`;
    const reply = `r=${nonce},s=${known.salt.toString("base64")},i=${known.iterations}`;
    this.#challenge = { first: { ...first, nonce }, text: reply, verifier: known };
    return { kind: "continue", data: Buffer.from(reply) };
  }

  #finish(text: string, { first, text: challenge, verifier }: Challenge): ExchangeStep {
    const end = text.lastIndexOf(",p=");
    const withoutProof = text.slice(0, Math.max(0, end));
    const clientProof = Buffer.from(text.slice(end + 3), "base64");
    const binding = Buffer.from(first.header).toString("base64");
    if (end < 0 || clientProof.length !== verifier.storedKey.length) {
      return failed("the final message is malformed");
    }
    if (withoutProof !== `c=${binding},r=${first.nonce}`) return failed("another nonce or binding");
    const message = `${first.bare},${challenge},${withoutProof}`;
    const signature = createHmac("sha256", verifier.storedKey).update(message).digest();
    const clientKey = Buffer.from(signature.map((byte, at) => byte ^ (clientProof[at] as number)));
    const storedKey = createHash("sha256").update(clientKey).digest();
    const isRight = timingSafeEqual(storedKey, verifier.storedKey);
    if (!isRight || this.#proof === undefined) return failed("wrong password");
    const serverSignature = createHmac("sha256", verifier.serverKey).update(message).digest();
    return {
      kind: "done",
      identity: { user: first.user, method: scramName, proof: this.#proof },
      data: Buffer.from(`v=${serverSignature.toString("base64")}`),
    };
  }

  #decoyOf(user: string): ScramVerifier {
    const drawn = createHmac("sha512", this.#decoyKey).update(user).digest();
    return {
      kind: "scram",
      iterations: scramIterations,
      salt: drawn.subarray(0, 16),
      storedKey: drawn.subarray(16, 48),
      serverKey: drawn.subarray(32, 64),
    };
  }
}

function failed(why: string): ExchangeStep {
  return { kind: "failed", why: `SCRAM: ${why}` };
}

/** `n,,n=user,r=nonce`; extensions behind the nonce are passed over, mandatory ones are not. */
function parseFirst(text: string): First | undefined {
  const match =
    /^([ny],(?:a=([^,]*))?,)(n=([^,]+),r=([\x21-\x2b\x2d-\x7e]+)(?:,[a-ln-z]=[^,]*)*)$/.exec(text);
  if (match === null) return undefined;
  const [, header = "", authorized, bare = "", name = "", nonce = ""] = match;
  const user = decodeName(name);
  if (user === undefined) return undefined;
  // Acting for another user is not offered.
  if (authorized !== undefined && decodeName(authorized) !== user) return undefined;
  return { user, bare, header, nonce };
}

function decodeName(name: string): string | undefined {
  if (/=(?!2C|3D)/.test(name)) return undefined;
  return name.replaceAll("=2C", ",").replaceAll("=3D", "=");
}
