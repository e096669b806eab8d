// Password hashes as texts, and checking a password against one.
//
//   $scrypt$ln=15,r=8,p=1$<salt>$<hash>                          ours (PHC string format)
//   $scram-sha-256$i=15000$<salt>$<stored key>$<server key>      ours, for SCRAM logins too
//   $7$<iterations>$<salt>$<hash>                                Mosquitto 2, PBKDF2-HMAC-SHA512
//   $6$<salt>$<hash>                                             Mosquitto 1, one round of SHA-512
//
// All parts are base64, in the PHC string without padding. Costs that a text may ask for are bounded,
// so that a file cannot be made to stop the broker. The work runs in threads, not on the event loop.

import { createHash, createHmac, pbkdf2, scrypt, timingSafeEqual } from "node:crypto";
import type { Random } from "../../base/index.ts";

export type PasswordHash =
  | {
      readonly kind: "scrypt";
      readonly cost: { readonly N: number; readonly r: number; readonly p: number };
      readonly salt: Buffer;
      readonly hash: Buffer;
    }
  | ScramVerifier
  | {
      readonly kind: "pbkdf2_sha512";
      readonly iterations: number;
      readonly salt: Buffer;
      readonly hash: Buffer;
    }
  | { readonly kind: "sha512"; readonly salt: Buffer; readonly hash: Buffer };

export type ScramVerifier = {
  readonly kind: "scram";
  readonly iterations: number;
  readonly salt: Buffer;
  readonly storedKey: Buffer;
  readonly serverKey: Buffer;
};

/** 32 MiB and some 60 ms: a guess costs, a login is bearable. */
const scryptLn = 15;
const scryptBlock = 8;
/** Memory that a stored hash may ask for. */
const scryptBytesMax = 256 * 1024 * 1024;
/** As RFC 7677 advises; the client has to do as many. */
export const scramIterations = 15_000;
const iterationsMax = 10_000_000;
const saltBytes = 16;
const hashBytes = 32;
const base64 = "[A-Za-z0-9+/]+={0,2}";

const scryptForm = new RegExp(
  `^\\$scrypt\\$ln=(\\d{1,2}),r=(\\d{1,3}),p=(\\d{1,2})\\$(${base64})\\$(${base64})$`,
);
const scramForm = new RegExp(
  `^\\$scram-sha-256\\$i=(\\d{1,8})\\$(${base64})\\$(${base64})\\$(${base64})$`,
);
const pbkdf2Form = new RegExp(`^\\$7\\$(\\d{1,8})\\$(${base64})\\$(${base64})$`);
const sha512Form = new RegExp(`^\\$6\\$(${base64})\\$(${base64})$`);

/** Undefined: no form that we know, or costs beyond the bounds. */
export function parsePasswordHash(text: string): PasswordHash | undefined {
  return parseScrypt(text) ?? parseScram(text) ?? parsePbkdf2(text) ?? parseSha512(text);
}

function parseScrypt(text: string): PasswordHash | undefined {
  const match = scryptForm.exec(text);
  if (match === null) return undefined;
  const [ln, r, p] = [Number(match[1]), Number(match[2]), Number(match[3])];
  if (ln < 10 || ln > 20 || r < 1 || p < 1 || p > 16) return undefined;
  const cost = { N: 2 ** ln, r, p };
  if (memoryOf(cost) > scryptBytesMax) return undefined;
  const hash = decode(match[5]);
  return hash.length < 16 ? undefined : { kind: "scrypt", cost, salt: decode(match[4]), hash };
}

function parseScram(text: string): PasswordHash | undefined {
  const match = scramForm.exec(text);
  if (match === null) return undefined;
  const iterations = Number(match[1]);
  const [salt, storedKey, serverKey] = [decode(match[2]), decode(match[3]), decode(match[4])];
  if (storedKey.length !== hashBytes || serverKey.length !== hashBytes) return undefined;
  if (!areIterations(iterations)) return undefined;
  return { kind: "scram", iterations, salt, storedKey, serverKey };
}

function parsePbkdf2(text: string): PasswordHash | undefined {
  const match = pbkdf2Form.exec(text);
  if (match === null) return undefined;
  const iterations = Number(match[1]);
  const hash = decode(match[3]);
  if (!areIterations(iterations) || hash.length < 16) return undefined;
  return { kind: "pbkdf2_sha512", iterations, salt: decode(match[2]), hash };
}

function parseSha512(text: string): PasswordHash | undefined {
  const match = sha512Form.exec(text);
  if (match === null) return undefined;
  const hash = decode(match[2]);
  return hash.length === 64 ? { kind: "sha512", salt: decode(match[1]), hash } : undefined;
}

function areIterations(count: number): boolean {
  return count >= 1 && count <= iterationsMax;
}

function decode(text: string | undefined): Buffer {
  return Buffer.from(text ?? "", "base64");
}

function encode(bytes: Buffer): string {
  return bytes.toString("base64").replace(/=+$/, "");
}

function memoryOf({ N, r }: { readonly N: number; readonly r: number }): number {
  return 128 * N * r;
}

/** Whether the password is the one that was hashed. */
export async function verifyPassword(stored: PasswordHash, password: Buffer): Promise<boolean> {
  switch (stored.kind) {
    case "scrypt":
      return same(await scryptOf(password, stored.salt, stored.hash.length, stored.cost), stored);
    case "pbkdf2_sha512": {
      const { salt, iterations, hash } = stored;
      return same(await pbkdf2Of(password, { salt, iterations, digest: "sha512" }, hash), stored);
    }
    case "sha512":
      return same(createHash("sha512").update(password).update(stored.salt).digest(), stored);
    case "scram": {
      const { storedKey } = await scramKeys(password, stored.salt, stored.iterations);
      return timingSafeEqual(storedKey, stored.storedKey);
    }
  }
}

function same(found: Buffer, { hash }: { readonly hash: Buffer }): boolean {
  return found.length === hash.length && timingSafeEqual(found, hash);
}

/** A new text for a password. */
export async function hashPassword(password: Buffer, random: Random): Promise<string> {
  const salt = random.bytes(saltBytes);
  const cost = { N: 2 ** scryptLn, r: scryptBlock, p: 1 };
  const hash = await scryptOf(password, salt, hashBytes, cost);
  return `$scrypt$ln=${scryptLn},r=${scryptBlock},p=1$${encode(salt)}$${encode(hash)}`;
}

/** The same, for users who log in by SCRAM-SHA-256; their passwords work as well. */
export async function hashForScram(password: Buffer, random: Random): Promise<string> {
  const salt = random.bytes(saltBytes);
  const { storedKey, serverKey } = await scramKeys(password, salt, scramIterations);
  const keys = `${encode(storedKey)}$${encode(serverKey)}`;
  return `$scram-sha-256$i=${scramIterations}$${encode(salt)}$${keys}`;
}

/** RFC 5802, section 3. */
async function scramKeys(password: Buffer, salt: Buffer, iterations: number) {
  const salted = await pbkdf2Of(password, { salt, iterations, digest: "sha256" }, { length: 32 });
  const clientKey = createHmac("sha256", salted).update("Client Key").digest();
  const storedKey = createHash("sha256").update(clientKey).digest();
  const serverKey = createHmac("sha256", salted).update("Server Key").digest();
  return { storedKey, serverKey };
}

function scryptOf(
  password: Buffer,
  salt: Buffer,
  length: number,
  cost: { readonly N: number; readonly r: number; readonly p: number },
): Promise<Buffer> {
  // Node refuses what needs exactly its limit.
  const maxmem = 2 * memoryOf(cost) + 1024 * 1024;
  return new Promise((resolve, reject) => {
    scrypt(password, salt, length, { ...cost, maxmem }, (error, hash) => {
      if (error === null) resolve(hash);
      else reject(error);
    });
  });
}

type Pbkdf2 = { readonly salt: Buffer; readonly iterations: number; readonly digest: string };

function pbkdf2Of(
  password: Buffer,
  { salt, iterations, digest }: Pbkdf2,
  { length }: { readonly length: number },
): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    pbkdf2(password, salt, iterations, length, digest, (error, hash) => {
      if (error === null) resolve(hash);
      else reject(error);
    });
  });
}
