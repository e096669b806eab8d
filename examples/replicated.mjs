// A counter on three Raft nodes in one process. The leader is stopped, another takes over, and what
// was answered is still there. In production each node is a process of its own, on a disk of its own.
import { mkdtemp, rm } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { startRaftNode } from "flagstone/raft";

/** Adds up. Lives in memory: snapshots and the log bring it back. */
class Counter {
  version = 1;
  durableIndex = 0;
  total = 0;

  apply(entries) {
    return entries.map(({ data }) => {
      this.total += Number(Buffer.from(data).toString());
      return this.total;
    });
  }

  capture() {
    return [Buffer.from(String(this.total))];
  }

  async install(_head, pieces) {
    let text = "";
    for await (const piece of pieces) text += Buffer.from(piece).toString();
    this.total = Number(text);
  }
}

const freePort = () =>
  new Promise((resolve) => {
    const server = createServer().listen(0, "127.0.0.1", () => {
      const { port } = server.address();
      server.close(() => resolve(port));
    });
  });

const folder = await mkdtemp(join(tmpdir(), "flagstone-counter-"));
const clusterId = "5ca1ab1e".repeat(4);
const members = [];
for (const node of [1, 2, 3]) {
  const siteId = String(node).padStart(32, "0");
  const address = { host: "127.0.0.1", port: await freePort() };
  members.push({ node, siteId, name: `node${node}`, address });
}

const nodes = await Promise.all(
  members.map(({ node }) =>
    startRaftNode({
      dir: join(folder, `node${node}`),
      clusterId,
      node,
      members,
      groups: [1],
      machineOf: () => new Counter(),
    }),
  ),
);

/** Adds at whoever leads; asks again while an election is under way. */
async function add(among, amount) {
  for (;;) {
    const leader = among.find((node) => node.group(1).role === "leader");
    try {
      const command = { version: 1, data: Buffer.from(String(amount)) };
      if (leader) return { leader, total: (await leader.group(1).propose([command]))[0] };
    } catch (error) {
      // Only what certainly did not happen may be sent again without an id of its own.
      if (!["RAFT_NOT_LEADER", "RAFT_PROPOSAL_DROPPED"].includes(error.code)) throw error;
    }
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

const first = await add(nodes, 40);
console.log(`added 40: ${first.total}`);
await first.leader.close();
console.log("the leader is gone");
const others = nodes.filter((node) => node !== first.leader);
const second = await add(others, 2);
console.log(`added 2 at another: ${second.total}`);
for (const node of others) await node.close();
await rm(folder, { recursive: true });
