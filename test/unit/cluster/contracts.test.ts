// The contract suites of the store's seams on shards that are Raft groups of one member.

import { expect, test } from "vitest";
import type { BackendRig, ShardLogRig } from "../../../src/contracts/index.ts";
import { backendContract, shardLogContract } from "../../../src/contracts/index.ts";
import type { ShardLog } from "../../../src/store/index.ts";
import { testContract } from "../../support/contract-tests.ts";
import {
  createReplicaWorld,
  ReplicaMachine,
  type ReplicaProcess,
} from "../../support/replica-machine.ts";

const withinMs = 3_600_000;

async function raftLogRig(): Promise<ShardLogRig> {
  const world = createReplicaWorld("raft log", [1]);
  const machine = new ReplicaMachine(1, world);
  await world.clock.complete(machine.format(), withinMs);
  return {
    run: (promise) => world.clock.complete(promise, withinMs),
    open: async (shard) => {
      const { logs } = machine.process ?? (await machine.boot([machine.member]));
      return logs.open(shard);
    },
    end: async (how) => {
      if (how === "stop") await machine.stop();
      else machine.end("power");
    },
    breakDown: () => void machine.disk.inject({ on: "fdatasync", path: "data/log", fails: "EIO" }),
    close: async () => machine.end("kill"),
  };
}

async function replicaRig(): Promise<BackendRig> {
  const world = createReplicaWorld("backend", [1]);
  const machine = new ReplicaMachine(1, world);
  await world.clock.complete(machine.format(), withinMs);
  return {
    run: (promise) => world.clock.complete(promise, withinMs),
    open: async (settings = {}) => {
      const process: ReplicaProcess = await machine.boot([machine.member]);
      return machine.open(process, settings);
    },
    end: async () => machine.end("power"),
    close: async () => machine.end("kill"),
  };
}

testContract("a Raft group of one", shardLogContract(raftLogRig));
testContract("backend on Raft groups of one", backendContract(replicaRig));

async function stayAboveReleased(rig: ShardLogRig): Promise<void> {
  const visited: string[] = [];
  const handlers = { onCommitted: () => undefined, onFailed: () => undefined };
  const open = async (fromIndex: number, releasedIndex: number): Promise<ShardLog> => {
    const log = await rig.open(5);
    log.release(releasedIndex);
    visited.length = 0;
    await log.replay(fromIndex, ({ kind, payload }) => {
      if (kind !== 0) visited.push(payload.toString());
    });
    log.start(log.lastIndex + 1, handlers);
    return log;
  };
  const first = await open(1, 0);
  const indexes = ["a", "b", "c", "d"].map((text) => {
    first.propose(1, 1, Buffer.from(text));
    return first.lastIndex;
  });
  await first.barrier?.();
  const [a = 0, , c = 0] = indexes;
  await rig.end("stop");
  const second = await open(c + 1, a);
  expect(visited).toEqual(["d"]);
  second.release(a);
  await rig.end("stop");
  await open(a + 1, a);
  expect(visited).toEqual(["b", "c", "d"]);
}

test("entries above what was released stay, though the checkpoint of a start is above them", async () => {
  const rig = await raftLogRig();
  await rig.run(stayAboveReleased(rig));
  await rig.close();
});
