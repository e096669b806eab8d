// A store at a node that leads nothing: whatever it is asked for, transactions and evidence included, is
// decided by others, and answered as by a store that stands alone.

import { expect } from "vitest";
import { type BackendRig, backendContract } from "../../src/contracts/index.ts";
import { testContract } from "../support/contract-tests.ts";
import { ReplicaThree } from "../support/replica-three.ts";

const withinMs = 3_600_000;
/** Other nodes open such a database at their next start (docs/decisions/092-roster.md, step 7). */
const notYet = "a database made at run time takes its topics, and goes with what it has";

/** Speaks to the node of three that leads nothing. */
async function followerRig(): Promise<BackendRig> {
  const three = new ReplicaThree("follower");
  return {
    run: (promise) => three.world.clock.complete(promise, withinMs),
    open: (settings = {}) => three.open(settings),
    end: async () => {
      expect(three.led()).toEqual([]);
      three.follower.end("power");
    },
    close: async () => {
      expect(three.led()).toEqual([]);
      three.close();
    },
  };
}

const rules = backendContract(followerRig).filter(({ title }) => title !== notYet);
expect(rules.length).toBe(backendContract(followerRig).length - 1);
testContract("backend at a node that leads nothing", rules);
