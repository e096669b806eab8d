import { expect, test } from "vitest";
import { RaftCluster } from "../../../support/raft-cluster.ts";

test("a proposal is answered with the machine's result once a majority holds it", async () => {
  const cluster = new RaftCluster();
  await cluster.form(3);
  const leader = await cluster.leader();
  expect(await cluster.propose(leader, "a", "b")).toEqual(["1", "2"]);
  await cluster.until(() => [1, 2, 3].every((node) => cluster.texts(node).length === 2));
  for (const node of [1, 2, 3]) expect(cluster.texts(node)).toEqual(["a", "b"]);
  await cluster.close();
});
