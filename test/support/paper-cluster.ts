// A cluster on paper: three sites of which the third does not answer.

import type { ClusterPort } from "../../src/admin/index.ts";

type Note = <T>(name: string, answer: (...args: never[]) => T) => (...args: never[]) => T;

const site = { zone: "", state: "active" as const, leads: 1 };

export function paperCluster(note: Note): ClusterPort {
  const done = async (): Promise<void> => undefined;
  return {
    look: async () => ({
      ...{ name: "plant", clusterId: "ab".repeat(16), node: 1, replicas: 3, hasMajority: true },
      sites: [1, 2, 3].map((node) => {
        return { ...site, node, name: `n${node}`, address: `n${node}:7400`, answers: node < 3 };
      }),
      groups: [
        {
          ...{ group: 6, database: "messages", leader: 2, state: "up", applied: 7, commit: 9 },
          ...{ voters: [1, 2, 3], learners: [4] },
        },
      ],
    }),
    join: note("cluster.join", async () => ({ node: 4, members: [] })) as ClusterPort["join"],
    steer: note("cluster.steer", done) as ClusterPort["steer"],
    move: note("cluster.move", done) as ClusterPort["move"],
    setReplicas: note("cluster.setReplicas", done) as ClusterPort["setReplicas"],
  };
}
