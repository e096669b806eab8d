import { expect, test } from "vitest";
import {
  CodedError,
  type ListenAddress,
  type Network,
  SeededRandom,
  SimClock,
  SimDisk,
  silentLogger,
} from "../../../src/base/index.ts";
import type {
  Assemble,
  BoundListener,
  Components,
  NodeParts,
  SecurityFace,
} from "../../../src/node/assemble.ts";
import { createSettings } from "../../../src/node/config/config.ts";
import { type ListenerParts, openListeners } from "../../../src/node/listeners.ts";
import { composeNode } from "../../../src/node/node.ts";
import { CertificateWatch } from "../../../src/node/security/certificates.ts";
import { lockDriver } from "../../support/lock-driver.ts";

function paperComponents() {
  const clock = new SimClock();
  const random = new SeededRandom(7);
  const kv = lockDriver();
  const disk = new SimDisk({ clock, random });
  const components: Components = {
    clock,
    random,
    disk,
    kv,
    network: fakeNetwork(),
    logger: silentLogger,
  };
  return { components, clock, kv };
}

function fakeNetwork(taken: readonly number[] = []): Network & { readonly open: Set<number> } {
  const open = new Set<number>();
  return {
    open,
    async listen(address: ListenAddress) {
      const wanted = "port" in address ? address.port : 0;
      if (taken.includes(wanted)) throw new Error("address in use");
      const port = wanted === 0 ? 50_000 + open.size : wanted;
      open.add(port);
      const close = async (): Promise<void> => {
        open.delete(port);
      };
      return { address: { host: "127.0.0.1", port }, failedAccepts: 0, close };
    },
    connect: () => Promise.reject(new Error("not here")),
  };
}

/** Nobody looks into it here. */
const noParts = {} as NodeParts;
const security = {} as SecurityFace;

const settings = createSettings({ data: { dir: "data" } });

function bound(name: string, host: string, port: number): BoundListener {
  return { name, type: "tcp", host, port, authentication: ["anonymous"] };
}

function partsOn(network: Network): ListenerParts {
  const nobody = (): never => {
    throw new Error("nobody connects");
  };
  return {
    listen: (_name, at) => network.listen(at, nobody),
    certificates: new CertificateWatch(new SimClock(), silentLogger),
  };
}

test("what assemble builds is closed before the data directory is given back", async () => {
  const { components, clock, kv } = paperComponents();
  const order: string[] = [];
  const assemble: Assemble = async ({ dataDir }) => {
    order.push(`assembled on ${dataDir.path}, lock held: ${kv.held.size}`);
    return {
      listeners: [bound("tcp", "127.0.0.1", 1)],
      parts: noParts,
      security,
      close: async () => {
        order.push(`closed, lock held: ${kv.held.size}`);
      },
    };
  };
  const node = await clock.complete(composeNode(settings, components, assemble));
  expect(node.listeners).toHaveLength(1);
  expect(node.readyMs).toBeGreaterThan(0);
  await node.close();
  await node.close();
  expect(order).toEqual(["assembled on data, lock held: 1", "closed, lock held: 1"]);
  expect(kv.held.size).toBe(0);
});

test("a start that fails half way gives the data directory back and reports its own error", async () => {
  const { components, clock, kv } = paperComponents();
  const assemble: Assemble = async () => {
    throw new Error("no room");
  };
  await expect(clock.complete(composeNode(settings, components, assemble))).rejects.toThrow(
    "no room",
  );
  expect(kv.held.size).toBe(0);
});

test("`failed` rejects with the first failure, and needs nobody who looks", async () => {
  const { components, clock } = paperComponents();
  const assemble: Assemble = async ({ fail }) => {
    fail(new CodedError("LOG_FAILED", "internal", "fdatasync failed", {}));
    fail(new CodedError("LOG_FAILED", "internal", "second", {}));
    return { listeners: [], parts: noParts, security, close: async () => undefined };
  };
  const node = await clock.complete(composeNode(settings, components, assemble));
  await expect(node.failed).rejects.toMatchObject({
    code: "NODE_FAILED",
    message: "the node failed and stopped acknowledging: fdatasync failed",
    cause: { code: "LOG_FAILED" },
  });
});

test("two nodes in one process share nothing", async () => {
  const first = paperComponents();
  const second = paperComponents();
  const assemble: Assemble = async () => ({
    listeners: [],
    parts: noParts,
    security,
    close: async () => undefined,
  });
  const one = await first.clock.complete(composeNode(settings, first.components, assemble));
  const two = await second.clock.complete(composeNode(settings, second.components, assemble));
  await one.close();
  expect(second.kv.held.size).toBe(1);
  await two.close();
});

test("listeners report the port they were given", async () => {
  const listening = createSettings({ listeners: { a: { port: 0 }, b: { port: 7 } } });
  const network = fakeNetwork();
  const open = await openListeners(listening, partsOn(network));
  expect(open.bound).toEqual([bound("a", "127.0.0.1", 50_000), bound("b", "127.0.0.1", 7)]);
  await open.close();
  expect(network.open.size).toBe(0);
});

test("listeners are bound all or none, and the one that fails is named", async () => {
  const listening = createSettings({
    listeners: { a: { port: 6 }, b: { port: 7, host: "::1" } },
  });
  const network = fakeNetwork([7]);
  const opening = openListeners(listening, partsOn(network));
  await expect(opening).rejects.toThrow("cannot listen on [::1]:7 (listeners.b): address in use");
  expect(network.open.size).toBe(0);
});
