// The contract suites of the store's seams on everything that implements them here.

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "vitest";
import { SeededRandom, SimClock, SimDisk, silentLogger } from "../../../src/base/index.ts";
import {
  type BackendRig,
  backendContract,
  type LayoutRig,
  layoutContract,
  type Rig,
  type ShardLogRig,
  shardLogContract,
} from "../../../src/contracts/index.ts";
import { StoreReader } from "../../../src/contracts/store-reader.ts";
import { defaultLogSettings, openLog, type WriteAheadLog } from "../../../src/log/index.ts";
import { Backlogs } from "../../../src/store/backlogs.ts";
import {
  type LocalStore,
  MemoryMachine,
  type OpenedStore,
  openLocalStore,
} from "../../../src/store/index.ts";
import { LocalLog, LogSender } from "../../../src/store/shard-log.ts";
import { steadyClock } from "../../support/clocks.ts";
import { testContract } from "../../support/contract-tests.ts";
import { MemoryShardLog } from "../../support/memory-shard-log.ts";
import { append, appendRequest } from "../../support/store-calls.ts";
import { StoreMachine } from "../../support/store-machine.ts";

const atOnce: Pick<Rig, "run"> = { run: (promise) => promise };

// ---------------------------------------------------------------- shard log

async function memoryLogRig(): Promise<ShardLogRig> {
  const disk = { entries: new Map() };
  let open: MemoryShardLog[] = [];
  return {
    ...atOnce,
    open: async (shard) => {
      const log = new MemoryShardLog(shard, disk);
      open.push(log);
      return log;
    },
    end: async (how) => {
      // In order: what was proposed before the end is committed.
      if (how === "stop") await new Promise((resolve) => setImmediate(resolve));
      for (const log of open) log.end();
      open = [];
    },
    breakDown: () => {
      for (const log of open) log.fail();
    },
    close: async () => undefined,
  };
}

async function localLogRig(): Promise<ShardLogRig> {
  const clock = new SimClock();
  const random = new SeededRandom(5);
  const disk = new SimDisk({ clock, random });
  let boots = 0;
  let process: ReturnType<SimClock["createProcess"]> | undefined;
  let log: WriteAheadLog | undefined;
  const settings = { ...defaultLogSettings, segmentBytes: 256 * 1024, zeroFillBytes: 64 * 1024 };
  return {
    run: (promise) => clock.complete(promise, 600_000),
    open: async (shard) => {
      if (process === undefined) {
        process = clock.createProcess();
        boots++;
        const parts = { clock: process, random: random.split(`boot ${boots}`) };
        log = await openLog(
          settings,
          { ...parts, disk: disk.attach(), logger: silentLogger },
          "log",
        );
      }
      const dir = `shard-${shard}`;
      await disk.makeDir(dir);
      const common = { disk: disk.attach(), logger: silentLogger };
      const backlogs = new Backlogs({ ...common, dir, quarantineDir: "quarantine" });
      const sender = new LogSender(process);
      return new LocalLog(shard, { ...common, log: log!, sender, backlogs, epoch: () => 1 });
    },
    end: async (how) => {
      if (how === "stop") await log!.close();
      process?.kill();
      process = undefined;
      disk.crash();
    },
    breakDown: () => void disk.inject({ on: "fdatasync", path: "log", fails: "EIO" }),
    close: async () => undefined,
  };
}

testContract("a log in memory", shardLogContract(memoryLogRig));
testContract("the write-ahead log", shardLogContract(localLogRig));

// ---------------------------------------------------------------- layouts

type Layout = {
  change(store: LocalStore, number: number): Promise<number>;
  list(store: LocalStore): Promise<string[]>;
  shard(store: LocalStore): number;
  expected(count: number): string[];
};

const countTo = (count: number): number[] => Array.from({ length: count }, (_, at) => at + 1);

const logLayout: Layout = {
  change: async (store, number) => {
    const outcome = await append(store, appendRequest(`a/${number % 5}/x`, `v${number}`));
    return outcome.kind === "stored" ? outcome.timeUs : 0;
  },
  list: async (store) => {
    const reader = new StoreReader(store, ["#"]);
    await reader.atTail();
    reader.subscriber.close();
    return reader.values;
  },
  shard: (store) => store.logShards[0]!,
  expected: (count) => countTo(count).map((number) => `v${number}`),
};

/** Every seventh change deletes; keys come again. */
const mapLayout: Layout = {
  change: (store, number) =>
    new Promise((resolve, reject) => {
      const value = number % 7 === 0 ? undefined : Buffer.from(`v${number}`);
      const key = `k/${number % 4}`;
      store.state("owner").write([{ key, value }], [], (error, timeUs) => {
        if (error === undefined) resolve(timeUs);
        else reject(error);
      });
    }),
  list: async (store) => {
    const entries = await store.state("owner").list("", { countMax: 1_000 });
    return entries.map(({ key, value }) => `${key} ${value}`);
  },
  shard: (store) => store.state("owner").number,
  expected: (count) => {
    const values = new Map<string, string>();
    for (const number of countTo(count)) {
      if (number % 7 === 0) values.delete(`k/${number % 4}`);
      else values.set(`k/${number % 4}`, `v${number}`);
    }
    return [...values].map(([key, value]) => `${key} ${value}`).sort();
  },
};

function layoutRig(layout: Layout): () => Promise<LayoutRig> {
  return async () => {
    const m = new StoreMachine({ seed: 11, store: { shards: 1 } });
    let process: Awaited<ReturnType<StoreMachine["open"]>> | undefined;
    return {
      run: (promise) => m.clock.complete(promise, 3_600_000),
      open: async () => {
        process = await m.open();
        const { store } = process;
        await store.start();
        return {
          change: (number) => layout.change(store, number),
          checkpoint: () => store.checkpoint(),
          list: () => layout.list(store),
          hash: () => store.operator.logicalHash(layout.shard(store)),
        };
      },
      end: async (how) => {
        if (how === "stop") {
          await process!.store.close();
          await process!.log.close();
        }
        if (how === "power") m.crash();
        else m.kill();
      },
      pass: (number) =>
        new Promise((resolve) => {
          m.clock.schedule(number / 3, resolve);
        }),
      expected: layout.expected,
      close: async () => undefined,
    };
  };
}

testContract("layout log", layoutContract(layoutRig(logLayout)));
testContract("layout map", layoutContract(layoutRig(mapLayout)));

// ---------------------------------------------------------------- backends

async function memoryBackend(): Promise<BackendRig> {
  const memory = new MemoryMachine(steadyClock());
  let clock = steadyClock();
  return {
    ...atOnce,
    open: async (settings = {}) => {
      clock = steadyClock();
      return (await openLocalStore({ memory, settings, clock })).store;
    },
    end: async () => {
      clock.kill();
      memory.crash();
    },
    close: async () => clock.kill(),
  };
}

async function folderBackend(): Promise<BackendRig> {
  const dir = mkdtempSync(join(tmpdir(), "flagstone-contract-"));
  const log = { segmentBytes: 64 * 1024, zeroFillBytes: 64 * 1024 };
  let opened: OpenedStore | undefined;
  const end = async (): Promise<void> => {
    await opened?.close();
    opened = undefined;
  };
  return {
    ...atOnce,
    open: async (settings = {}) => {
      opened = await openLocalStore({ dir, settings, log, clock: steadyClock() });
      return opened.store;
    },
    end,
    close: async () => {
      await end();
      rmSync(dir, { recursive: true });
    },
  };
}

testContract("backend `memory`", backendContract(memoryBackend));
testContract("backend in a folder", backendContract(folderBackend));

test("equal histories have equal logical hashes on every backend, also in the next process", async () => {
  const hashesOf = async (openRig: () => Promise<BackendRig>): Promise<string[]> => {
    const rig = await openRig();
    const store = await rig.open();
    await store.operator.createDatabase({ name: "metrics", shards: 2, topics: ["m/#"] });
    const epoch = await store.openWriter("w", "p1");
    for (let n = 0; n < 60; n++) {
      const topic = `${n % 3 === 0 ? "m" : "a"}/${n % 11}/x`;
      const stamp = { name: "w", epoch, sequence: n / 20 + 1 };
      const writer = n % 20 === 0 ? { publisher: "p1", topic: "a", writer: stamp } : {};
      await append(store, appendRequest(topic, `v${n}`, { publisher: `p${n % 5}`, ...writer }));
      await mapLayout.change(store, n + 1);
      if (n === 30) await store.rotate();
    }
    const hashes = async ({ operator }: LocalStore): Promise<string[]> => {
      const shards = operator.databases().flatMap((each) => each.shards);
      return Promise.all(shards.map((shard) => operator.logicalHash(shard)));
    };
    const before = await hashes(store);
    await rig.end();
    expect(await hashes(await rig.open())).toEqual(before);
    await rig.close();
    return before;
  };
  const inMemory = await hashesOf(memoryBackend);
  expect(inMemory).toHaveLength(11);
  expect(await hashesOf(folderBackend)).toEqual(inMemory);
});
