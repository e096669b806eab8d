// Keys: where clients are awaited, and on which terms. See `../keys.ts` for the rules.

import { choice, count, group, list, named, port, size, text } from "../schema.ts";
import { gib, kib } from "./units.ts";

const anyPath = /^[^\0]{0,4096}$/;
const ratePerSMax = 100_000_000;

const tls = group(
  "Certificate of a `tls` or `wss` listener. Files are read again when they change.",
  {
    cert: text({
      doc: "PEM file with the certificate and its chain.",
      reload: "restart",
      fallback: "",
      pattern: anyPath,
      expected: "a path",
    }),
    key: text({
      doc: "PEM file with the private key; nobody else should be able to read it.",
      reload: "restart",
      fallback: "",
      pattern: anyPath,
      expected: "a path",
    }),
    clientCa: text({
      doc: "PEM file with the authorities that sign certificates of clients.",
      reload: "restart",
      fallback: "",
      pattern: anyPath,
      expected: "a path",
    }),
    clientCertificate: choice(["none", "optional", "required"], {
      doc: "Whether clients show a certificate. One that does not verify counts as none.",
      reload: "restart",
      fallback: "none",
    }),
    versionMin: choice(["1.2", "1.3"], {
      doc: "Oldest version of TLS that is spoken.",
      reload: "restart",
      fallback: "1.2",
    }),
  },
);

export const listeners = named(
  {
    doc: "Addresses on which MQTT clients are awaited. Naming one replaces the built-in `tcp`.",
    label: "listener",
    builtIn: { tcp: {} },
    builtInWhenNamed: "replaced",
  },
  {
    type: choice(["tcp", "tls", "ws", "wss", "unix"], {
      doc: "Plain TCP, TLS, WebSocket, WebSocket over TLS, or a Unix socket.",
      reload: "restart",
      fallback: "tcp",
    }),
    host: text({
      doc: "Address to bind. Other than loopback only when `authentication` says who may enter.",
      reload: "restart",
      fallback: "127.0.0.1",
      pattern: /^[A-Za-z0-9_.:%-]+$/,
      expected: "a host name or address such as 127.0.0.1, :: or broker.example.org",
    }),
    port: port({
      doc: "TCP port to bind; 8883 is usual for TLS.",
      reload: "restart",
      fallback: "1883",
    }),
    path: text({
      doc: "Of a `unix` listener: the socket's file (mode 0660). Of `ws`, `wss`: path of the URL.",
      reload: "restart",
      fallback: "/mqtt",
      pattern: /^[^\0]{1,200}$/,
      expected: "a path",
    }),
    tls,
    origins: list({
      doc: "Web pages that may connect by WebSocket; empty: pages of the same host; `*`: all.",
      reload: "restart",
      fallback: [],
      itemsMax: 100,
      expected: "a list of origins such as [https://app.example.org]",
    }),
    proxyFrom: list({
      doc: "Balancers that send a PROXY header (version 1 or 2), as addresses or networks.",
      reload: "restart",
      fallback: [],
      itemsMax: 100,
      expected: "a list of addresses such as [10.0.0.7, 10.1.0.0/16]",
    }),
    authentication: list({
      doc: "Chain of this listener; empty: `authentication.chain`.",
      reload: "restart",
      fallback: [],
      itemsMax: 8,
      expected: "a list such as [certificate, password_file]",
    }),
    connectionsMax: count({
      doc: "Connections of this listener at once. Beyond: closed.",
      reload: "restart",
      fallback: "0",
      min: 1,
      max: 10_000_000,
      zero: "no_limit",
    }),
    connectRate: count({
      doc: "New connections of this listener in a second. Beyond: closed.",
      reload: "restart",
      fallback: "0",
      min: 1,
      max: ratePerSMax,
      zero: "no_limit",
    }),
    messageRate: count({
      doc: "PUBLISHes of each of its clients in a second. Beyond: not read for a while.",
      reload: "restart",
      fallback: "0",
      min: 1,
      max: ratePerSMax,
      zero: "no_limit",
    }),
    byteRate: size({
      doc: "Bytes of each of its clients in a second. Beyond: not read for a while.",
      reload: "restart",
      fallback: "0",
      min: kib,
      max: gib,
      zero: "no_limit",
    }),
  },
);
