// What a login brings, for tests of authentication methods.

import type { PeerCertificate } from "../../src/base/index.ts";
import type { LoginRequest } from "../../src/broker/index.ts";

export function loginRequest(fields: {
  readonly userName?: string | undefined;
  readonly password?: string | undefined;
  readonly certificate?: PeerCertificate;
}): LoginRequest {
  const { userName, password, certificate } = fields;
  return {
    clientId: "c",
    userName,
    password: password === undefined ? undefined : Buffer.from(password),
    certificate,
    remote: "127.0.0.1:50000",
    listener: "tcp",
  };
}
