// The client's side of SCRAM-SHA-256, written from RFC 5802 for tests.

import { createHash, createHmac, pbkdf2Sync } from "node:crypto";

export function scramFirst(user: string, nonce: string, header = "n,,"): string {
  const name = user.replaceAll("=", "=3D").replaceAll(",", "=2C");
  return `${header}n=${name},r=${nonce}`;
}

/** `said`: what the final message says of binding and nonce, when it is to be wrong. */
export function scramFinal(first: string, challenge: string, password: string, said?: string) {
  const bare = first.slice(first.indexOf("n="));
  const header = first.slice(0, first.indexOf("n="));
  const [, nonce = "", salt = "", iterations = ""] =
    /^r=(.+),s=(.+),i=(\d+)$/.exec(challenge) ?? [];
  const salted = pbkdf2Sync(
    password,
    Buffer.from(salt, "base64"),
    Number(iterations),
    32,
    "sha256",
  );
  const clientKey = hmac(salted, "Client Key");
  const storedKey = createHash("sha256").update(clientKey).digest();
  const withoutProof = said ?? `c=${Buffer.from(header).toString("base64")},r=${nonce}`;
  const signed = `${bare},${challenge},${withoutProof}`;
  const signature = hmac(storedKey, signed);
  const proof = Buffer.from(clientKey.map((byte, at) => byte ^ (signature[at] as number)));
  const serverSignature = hmac(hmac(salted, "Server Key"), signed).toString("base64");
  return { message: `${withoutProof},p=${proof.toString("base64")}`, serverSignature };
}

function hmac(key: Buffer, text: string): Buffer {
  return createHmac("sha256", key).update(text).digest();
}
