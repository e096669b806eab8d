// The public conformance suite of aedes-persistence 11, in its three modes.

import { createRequire } from "node:module";
import { afterEach } from "vitest";
import { CallbackPersistence, StorePersistence } from "../../../src/aedes/index.ts";
import { systemClock } from "../../../src/base/index.ts";
import { MemoryMachine, openLocalStore } from "../../../src/store/index.ts";
import { createNodeTest } from "../../support/node-test-shim.ts";

const require = createRequire(import.meta.url);
const abstract: (options: object) => void = require("aedes-persistence/abstract.js");
const opened: StorePersistence[] = [];

async function openInMemory(): Promise<StorePersistence> {
  const memory = new MemoryMachine(systemClock);
  const { store, close } = await openLocalStore({ memory });
  const persistence = new StorePersistence({ store, close });
  opened.push(persistence);
  return persistence;
}

afterEach(async () => {
  for (const persistence of opened.splice(0)) await persistence.destroy();
});

abstract({
  test: createNodeTest("async"),
  persistence: openInMemory,
  testAsync: true,
});

abstract({
  test: createNodeTest("ready"),
  persistence: async () => new CallbackPersistence(await openInMemory()),
  waitForReady: true,
});

abstract({
  test: createNodeTest("callbacks"),
  persistence: async () => new CallbackPersistence(await openInMemory()),
});
