// Keys: who is who. See `../keys.ts` for the rules.

import { choice, count, duration, group, list, secret, text } from "../schema.ts";
import { day, minute, second } from "./units.ts";

const anyPath = /^[^\0]{0,4096}$/;
/** None with user and password: they would not be sent, and URLs are shown. */
const anyUrl = /^(https?:\/\/(?![^/?#]*@)[^\s]{1,2000})?$/;
const anyText = /^[^\0]{0,1024}$/;

const jwt = group(
  "JSON Web Tokens, sent as passwords. One of the three sources of keys is needed.",
  {
    jwksUrl: text({
      doc: "Where the key set is fetched, and fetched again as keys rotate.",
      reload: "restart",
      fallback: "",
      pattern: anyUrl,
      expected: "a URL that begins with https:// or http://, without user and password",
    }),
    jwksFile: text({
      doc: "File with the key set; read again when it changes.",
      reload: "restart",
      fallback: "",
      pattern: anyPath,
      expected: "a path",
    }),
    secret: secret({
      doc: "Shared secret for HS256 and the like, 32 bytes or more.",
      reload: "restart",
      fallback: "",
      pattern: /^(|.{32,})$/s,
      expected: "32 bytes or more",
    }),
    refresh: duration({
      doc: "How often the key set of `jwksUrl` is fetched.",
      reload: "restart",
      fallback: "5m",
      min: second,
      max: day,
    }),
    algorithms: list({
      doc: "Algorithms that a token may be signed with.",
      reload: "restart",
      fallback: ["RS256", "PS256", "ES256", "EdDSA"],
      itemsMax: 12,
      expected: "a list such as [RS256, ES256]",
    }),
    issuer: text({
      doc: "The `iss` that a token must have; empty: any.",
      reload: "restart",
      fallback: "",
      pattern: anyText,
    }),
    audience: text({
      doc: "The `aud` that a token must have; empty: any.",
      reload: "restart",
      fallback: "",
      pattern: anyText,
    }),
    userClaim: text({
      doc: "Claim that holds the user.",
      reload: "restart",
      fallback: "sub",
      pattern: /^[^\0]{1,100}$/,
    }),
    leeway: duration({
      doc: "How far clocks may be apart.",
      reload: "restart",
      fallback: "10s",
      min: 0,
      max: 10 * minute,
      zero: "as_is",
      zeroDoc: "not at all",
    }),
  },
);

const http = group("A service that is asked about each login, by POST with JSON.", {
  url: text({
    doc: "Where to ask; empty: nobody is asked.",
    reload: "restart",
    fallback: "",
    pattern: anyUrl,
    expected: "a URL that begins with https:// or http://, without user and password",
  }),
  bearer: secret({
    doc: "Sent as `Authorization: Bearer`; empty: not sent.",
    reload: "restart",
    fallback: "",
    pattern: anyText,
  }),
  timeout: duration({
    doc: "How long an answer may take. Beyond: the login is refused with 0x88.",
    reload: "restart",
    fallback: "5s",
    min: 100,
    max: minute,
  }),
  requestsMax: count({
    doc: "Questions under way at once. Beyond: refused with 0x88.",
    reload: "restart",
    fallback: "100",
    min: 1,
    max: 10_000,
  }),
});

export const authentication = group("Who may enter, and as whom.", {
  chain: list({
    doc:
      "Methods in their order, of certificate, jwt, password_file, users, http, anonymous. The " +
      "first that allows or denies decides. Empty: anonymous, on loopback only.",
    reload: "restart",
    fallback: [],
    itemsMax: 8,
    expected: "a list such as [certificate, password_file]",
  }),
  passwordFile: text({
    doc: "File of `password_file`: name:hash a line; read again at a reload.",
    reload: "restart",
    fallback: "",
    pattern: anyPath,
    expected: "a path",
  }),
  certificateUser: choice(["common_name", "alternative_name"], {
    doc: "Which part of a client's certificate is its user.",
    reload: "restart",
    fallback: "common_name",
  }),
  hashingMax: count({
    doc: "Passwords hashed at once, each in a thread with up to 32 MiB.",
    reload: "restart",
    fallback: "2",
    min: 1,
    max: 64,
  }),
  jwt,
  http,
});

export const authorization = group("Who may publish and subscribe what.", {
  sources: list({
    doc:
      "Where rules come from, of rule_file, rules (in the store), login (rights in a token or from " +
      "the http method). Empty: everybody may use every topic that is not the broker's own.",
    reload: "restart",
    fallback: [],
    itemsMax: 3,
    expected: "a list such as [rule_file, login]",
  }),
  ruleFile: text({
    doc: "File of `rule_file`; read again at a reload.",
    reload: "restart",
    fallback: "",
    pattern: anyPath,
    expected: "a path",
  }),
});
