import { expect, test } from "vitest";
import { isCodedError } from "../../../../src/base/index.ts";
import { parseHostPort, parseSeed } from "../../../../src/node/config/cluster-rules.ts";
import { createSettings } from "../../../../src/node/config/config.ts";

function faultOf(cluster: object, others: object = {}): string {
  try {
    createSettings({ cluster, ...others });
  } catch (error) {
    if (isCodedError(error, "CONFIG_INVALID")) return error.message;
    throw error;
  }
  return "no fault";
}

const own = { name: "plant", storeOnly: true, node: "n1" };
const seeds = ["n1=10.0.0.1:7400", "n2=node2.example.org:7400", "n3=[::1]:7400"];

test("a node that joins or was made by init needs three keys, a first member two more", () => {
  expect(faultOf({})).toBe("no fault");
  expect(faultOf(own)).toBe("no fault");
  expect(faultOf({ ...own, expect: 3, seeds })).toBe("no fault");
});

test("a member serves MQTT, on the listeners that it is given, unless it only stores", () => {
  const listeners = { tcp: { port: 1884 } };
  expect(faultOf({ name: "plant", node: "n1" }, { listeners })).toBe("no fault");
});

test.each([
  [{ node: "n1" }, "cluster.node: is of no use without cluster.name"],
  [{ ...own, name: "Plant" }, "expected 1 to 64 of a-z, 0-9, . and -"],
  [{ name: "plant", storeOnly: true }, "cluster.node: is missing"],
  [{ ...own, expect: 2, seeds }, "names 3 first members, and cluster.expect says 2"],
  [{ ...own, seeds }, "names 3 first members, and cluster.expect says 0"],
  [{ ...own, expect: 3 }, "names 0 first members, and cluster.expect says 3"],
  [{ ...own, expect: 8, seeds }, "allowed 1 to 7"],
  [{ ...own, node: "n4", expect: 3, seeds }, '"n4", this node, is not among them'],
  [{ ...own, expect: 1, seeds: ["n1"] }, '"n1" is not a name and an address such as'],
  [{ ...own, expect: 1, seeds: ["n1=h:0"] }, '"n1=h:0" is not a name and an address'],
  [{ ...own, expect: 2, seeds: ["n1=a:1", "n1=b:1"] }, '"n1" is named twice'],
  [{ ...own, address: "n1:99999" }, "cluster.address: "],
  [{ ...own, host: "0.0.0.0" }, "0.0.0.0 can be reached by other machines, and members would"],
  [{ ...own, tls: { cert: "c", key: "k" } }, "cluster.tls.ca: is missing"],
])("%j is refused: %s", (cluster, fault) => {
  expect(faultOf(cluster)).toContain(fault);
});

test("members are heard by other machines with TLS, or where their network is trusted", () => {
  const tls = { cert: "c", key: "k", ca: "a" };
  expect(faultOf({ ...own, host: "0.0.0.0", tls })).toBe("no fault");
  expect(faultOf({ ...own, host: "0.0.0.0", trustNetwork: true })).toBe("no fault");
});

test("a listener beside a store node is a fault where it is written, whoever wrote it", () => {
  expect(faultOf(own, { listeners: { tcp: { port: 1884 } } })).toContain(
    "listeners.tcp.port: a node with cluster.storeOnly has no MQTT listeners: leave it out",
  );
});

test("addresses of members are hosts with ports", () => {
  expect(parseHostPort("[fe80::1]:7400")).toEqual({ host: "fe80::1", port: 7400 });
  expect(parseSeed("n1=node1.example.org:7400")).toEqual({
    name: "n1",
    address: { host: "node1.example.org", port: 7400 },
  });
  for (const text of ["7400", ":7400", "h:", "h:65536", "::1:7400", "h :1", "http://h:1"]) {
    expect(parseHostPort(text), text).toBeUndefined();
  }
});
