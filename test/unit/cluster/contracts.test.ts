// The contract suites of the store's seams on shards that are Raft groups of one member.

import type { BackendRig, ShardLogRig } from "../../../src/contracts/index.ts";
import { backendContract, shardLogContract } from "../../../src/contracts/index.ts";
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
