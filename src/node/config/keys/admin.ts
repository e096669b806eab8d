// Keys: the HTTP interface for operators. See `../keys.ts` for the rules.

import { count, flag, group, list, port, size, text } from "../schema.ts";
import { kib, mib } from "./units.ts";

export const admin = group("The HTTP interface for operators: API, metrics, health.", {
  enabled: flag({
    doc: "Whether the node has one. Inside a program (`createSettings`) it has none by default.",
    reload: "restart",
    fallback: "true",
  }),
  host: text({
    doc: "Address to bind. There is no TLS: for other machines put a proxy with TLS before it.",
    reload: "restart",
    fallback: "127.0.0.1",
    pattern: /^[A-Za-z0-9_.:%-]+$/,
    expected: "a host name or address such as 127.0.0.1, :: or admin.example.org",
  }),
  port: port({ doc: "TCP port to bind.", reload: "restart", fallback: "18083" }),
  hosts: list({
    doc: "Names by which it may be asked, beside addresses and localhost: that of a proxy, say.",
    reload: "restart",
    fallback: [],
    itemsMax: 64,
    expected: "a list of host names such as [admin.example.org]",
  }),
  openMetrics: flag({
    doc: "Whether `/metrics` is answered without an API key. It names no client and no topic.",
    reload: "restart",
    fallback: "true",
  }),
  bodyMax: size({
    doc: "Largest body of a request. Beyond: 413.",
    reload: "restart",
    fallback: "12MiB",
    min: 4 * kib,
    max: 64 * mib,
  }),
  requestsMax: count({
    doc: "Requests under way at once, each with its body; half of them for one key. Beyond: 429.",
    reload: "restart",
    fallback: "64",
    min: 1,
    max: 10_000,
  }),
  auditMax: size({
    doc: "Size of the audit log in the data directory; the older half goes when it is full.",
    reload: "restart",
    fallback: "16MiB",
    min: 64 * kib,
    max: 1024 * mib,
  }),
});
