// Keys: where clients are awaited. See `../keys.ts` for the rules.

import { named, port, text } from "../schema.ts";

export const listeners = named(
  {
    doc: "Addresses on which MQTT clients are awaited. Naming one replaces the built-in `tcp`.",
    label: "listener",
    builtIn: { tcp: { port: "1883" } },
    builtInWhenNamed: "replaced",
  },
  {
    host: text({
      doc: "Address to bind. Loopback unless said otherwise: nobody is authenticated yet.",
      reload: "restart",
      fallback: "127.0.0.1",
      pattern: /^[A-Za-z0-9_.:%-]+$/,
      expected: "a host name or address such as 127.0.0.1, :: or broker.example.org",
    }),
    port: port({ doc: "TCP port to bind.", reload: "restart" }),
  },
);
