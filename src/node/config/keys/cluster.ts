// Keys: a node as a member of a cluster. See `../keys.ts` for the rules.

import { count, flag, group, list, port, text } from "../schema.ts";

const anyPath = /^[^\0]{0,4096}$/;
const name = /^([a-z0-9][a-z0-9.-]{0,63})?$/;
const nameExpected = "1 to 64 of a-z, 0-9, . and -";

const tls = group("Mutual TLS between the nodes. Without it their network has to be trusted.", {
  cert: text({
    doc: "PEM file with this node's certificate. It names the node as `node` does.",
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
  ca: text({
    doc: "PEM file with the authority that signs the certificates of all members, and no others.",
    reload: "restart",
    fallback: "",
    pattern: anyPath,
    expected: "a path",
  }),
});

export const cluster = group(
  "A node as a member of a cluster: one broker and one store on several nodes.",
  {
    name: text({
      doc: "Name of the cluster; empty: the node runs by itself.",
      reload: "restart",
      fallback: "",
      pattern: name,
      expected: nameExpected,
    }),
    storeOnly: flag({
      doc: "The node stores, answers its HTTP interface, and has no MQTT listeners.",
      reload: "restart",
      fallback: "false",
    }),
    node: text({
      doc: "Name of this node. No two nodes of a cluster have the same.",
      reload: "restart",
      fallback: "",
      pattern: name,
      expected: nameExpected,
    }),
    expect: count({
      doc: "How many first members form the cluster, once. 0: joined later, or made by `cluster init`.",
      reload: "restart",
      fallback: "0",
      min: 1,
      max: 7,
      zero: "as_is",
      zeroDoc: "this node forms none",
    }),
    seeds: list({
      doc: "The first members, this one among them, alike at all of them; addresses may differ.",
      reload: "restart",
      fallback: [],
      itemsMax: 7,
      expected: "a list of names and addresses such as [n1=10.0.0.1:7400, n2=10.0.0.2:7400]",
    }),
    host: text({
      doc: "Address to bind for other members. Other than loopback needs `tls` or `trustNetwork`.",
      reload: "restart",
      fallback: "127.0.0.1",
      pattern: /^[A-Za-z0-9_.:%-]+$/,
      expected: "a host name or address such as 0.0.0.0, :: or node1.example.org",
    }),
    port: port({ doc: "TCP port to bind for other members.", reload: "restart", fallback: "7400" }),
    address: text({
      doc: "Where other members reach this node, told when it joins; empty: `host` and `port`.",
      reload: "restart",
      fallback: "",
      pattern: /^(\S{1,255}:\d{1,5})?$/,
      expected: "a host and a port such as node1.example.org:7400",
    }),
    zone: text({
      doc: "Rack, room or region of this node, told when it joins.",
      reload: "restart",
      fallback: "",
      pattern: /^[^\0]{0,64}$/,
      expected: "a text of at most 64 characters",
    }),
    trustNetwork: flag({
      doc: "Whether members may speak without TLS on an address that other machines can reach.",
      reload: "restart",
      fallback: "false",
    }),
    tls,
  },
);
