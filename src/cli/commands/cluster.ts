// `flagstone cluster`: sites of a cluster, who comes and goes. `init`, `join` and `recover` work on the
// data directory of a node that is stopped, all others ask a member.

import type { AnswerOf } from "../../admin/client.ts";
import { sleep } from "../../base/index.ts";
import { type AskInput, argument, askCommand, type Shown } from "../admin/ask.ts";
import { type Column, factsOf, grouped, tableOf } from "../admin/output.ts";
import { clientOf, targetOptions } from "../admin/target.ts";
import type { Command, CommandFamily, CommandInput } from "../command.ts";
import { configOptions } from "../config-flags.ts";
import { cliErrors } from "../errors.ts";
import { exitCodes } from "../exit-codes.ts";
import { recover } from "./cluster-recovery.ts";
import { memberOf, settingsOf } from "./cluster-settings.ts";

type View = AnswerOf<"getCluster">;
type Site = View["sites"][number];
type Group = View["groups"][number];

const siteColumns: readonly Column<Site>[] = [
  { head: "NODE", cell: (row) => row.node, isRight: true },
  { head: "NAME", cell: (row) => row.name },
  { head: "ADDRESS", cell: (row) => row.address },
  { head: "ZONE", cell: (row) => row.zone || undefined },
  { head: "STATE", cell: (row) => row.state },
  { head: "ANSWERS", cell: (row) => (row.state === "left" ? undefined : row.answers) },
  { head: "CLOCK", cell: (row) => (row.aheadMs === undefined ? undefined : `${row.aheadMs} ms`) },
  { head: "LEADS", cell: (row) => row.leads, isRight: true },
];

const groupColumns: readonly Column<Group>[] = [
  { head: "GROUP", cell: (row) => row.group, isRight: true },
  { head: "OF", cell: (row) => (row.group === 0 ? "roster" : row.database) },
  { head: "LEADER", cell: (row) => (row.leader === 0 ? "NONE" : row.leader), isRight: true },
  { head: "HERE", cell: (row) => row.state },
  { head: "APPLIED", cell: (row) => grouped(row.applied), isRight: true },
  { head: "BEHIND", cell: (row) => grouped(Math.max(0, row.commit - row.applied)), isRight: true },
  { head: "VOTERS", cell: (row) => row.voters.join(" ") },
  { head: "JOINING", cell: (row) => row.learners.join(" ") || undefined },
];

const status = askCommand({
  name: "status",
  summary: "sites of the cluster, who answers, and how its shards stand",
  watches: true,
  options: [{ flags: "--wait <seconds>", doc: "until all active nodes vote in every group" }],
  examples: ["cluster status", "cluster status --watch 2"],
  show: async ({ admin, options, io }) => {
    const waitS = options.whole("wait", "--wait", [1, 86_400]) ?? 0;
    const endMs = io.clock.elapsedMs() + waitS * 1_000;
    let value = await admin.getCluster();
    while (waitS > 0 && !isSettled(value)) {
      if (io.clock.elapsedMs() > endMs) throw cliErrors.unsettled({ waitS });
      await sleep(io.clock, askAgainMs);
      value = await admin.getCluster();
    }
    return { value, table: () => statusText(value) };
  },
});

const askAgainMs = 500;

/** Nobody comes or goes, and every active site has a vote in every group. */
function isSettled({ sites, groups, hasMajority }: View): boolean {
  const staying = sites.filter(({ state }) => state !== "left");
  const voters = staying.map(({ node }) => node).join();
  const isStill = staying.every(({ state }) => state === "active");
  return (
    isStill &&
    hasMajority &&
    groups.every((group) => group.learners.length === 0 && group.voters.join() === voters)
  );
}

function statusText(view: View): string {
  const { name, node, replicas, hasMajority, sites, groups } = view;
  const facts = factsOf([
    ["cluster", name],
    ["asked", `node ${node}`],
    ["replicas", replicas],
    ["majority", hasMajority ? "yes" : "NO: what has no leader acks nothing"],
  ]);
  return `${facts}\n${tableOf(sites, siteColumns)}\n${tableOf(groups, groupColumns)}`;
}

// ---------------------------------------------------------------- a stopped node

const init: Command = {
  name: "init",
  summary: "make the data of a stopped node the first replica of a cluster, in place",
  options: configOptions,
  examples: [
    "cluster init --config cluster.yaml",
    "cluster init --config cluster.yaml --data ./data",
  ],
  run: async (input) => {
    const settings = await settingsOf(input);
    const { name, node } = memberOf(settings, "comeIn");
    const { initCluster } = await import("../../node/cluster/offline.ts");
    const { isNew } = await initCluster(settings);
    const dir = settings.data.dir;
    const told = isNew ? "is now" : "was already";
    input.io.out(`${dir} ${told} the first replica of the cluster ${name}: node 1, ${node}\n`);
    return exitCodes.ok;
  },
};

const join: Command = {
  name: "join",
  summary: "take the empty data directory of this node into a cluster, by a word to a member",
  options: [...configOptions, ...targetOptions],
  examples: [
    "cluster join --config cluster.yaml --url http://n1:18083",
    "cluster join --config cluster.yaml --context n1",
  ],
  run: async (input) => {
    const settings = await settingsOf(input);
    const { name } = memberOf(settings, "comeIn");
    const admin = clientOf(input);
    const there = await admin.getCluster();
    if (there.name !== name) {
      const reason = `cluster.name is ${name}, and that node is of the cluster ${there.name}`;
      throw cliErrors.usage({ reason });
    }
    const { joinCluster } = await import("../../node/cluster/offline.ts");
    const node = await joinCluster(settings, there.clusterId, (body) =>
      admin.joinCluster({ body }),
    );
    input.io.out(`${settings.data.dir} is node ${node} of the cluster ${name}: start it\n`);
    return exitCodes.ok;
  },
};

// ---------------------------------------------------------------- by a word to a member

const nodeArgument = { name: "[node]", doc: "number of the node" };

function nodeOf(input: CommandInput): number {
  const text = argument(input, 0, "the number of the node");
  if (/^[1-9]\d{0,8}$/.test(text)) return Number(text);
  throw cliErrors.usage({ reason: `the node is a number, as status shows it, got "${text}"` });
}

async function steer(
  { admin }: AskInput,
  node: number,
  verb: "evacuate" | "stay" | "forget",
  told: string,
): Promise<Shown> {
  const value = await admin.steerSite({ params: { node, verb } });
  return { value, table: () => `${told}\n` };
}

const leaving = "moves its shards away; it has left when `cluster status` says so";

const leave = askCommand({
  name: "leave",
  summary: "evacuate the node that is asked",
  examples: ["cluster leave", "cluster leave --url http://broker:18083"],
  show: async (input) => {
    const { node } = await input.admin.getCluster();
    return steer(input, node, "evacuate", `node ${node} ${leaving}`);
  },
});

const evacuate = askCommand({
  name: "evacuate",
  summary: "move all shards off a node, which then has left for ever",
  arguments: [nodeArgument],
  examples: ["cluster evacuate 3", "cluster evacuate 3 -o json"],
  show: async (input) => {
    const node = nodeOf(input);
    return steer(input, node, "evacuate", `node ${node} ${leaving}`);
  },
});

const stay = askCommand({
  name: "stay",
  summary: "keep a node that is being evacuated",
  arguments: [nodeArgument],
  examples: ["cluster stay 3", "cluster stay 3 -o json"],
  show: async (input) => {
    const node = nodeOf(input);
    return steer(input, node, "stay", `node ${node} stays`);
  },
});

const forget = askCommand({
  name: "forget",
  summary: "let go of a node that is lost for good, without its help",
  arguments: [nodeArgument],
  options: [{ flags: "--force", doc: "also when it answers" }],
  examples: ["cluster forget 3", "cluster forget 3 -o json"],
  show: async (input) => {
    const node = nodeOf(input);
    const { sites } = await input.admin.getCluster();
    const site = sites.find((each) => each.node === node);
    if (site?.answers === true && site.state !== "left" && !input.options.isOn("force")) {
      const reason = `node ${node} answers: evacuate it, or say --force`;
      throw cliErrors.usage({ reason });
    }
    return steer(input, node, "forget", `node ${node} is forgotten, and never comes back`);
  },
});

const move = askCommand({
  name: "move",
  summary: "tell all members where a node is reached now",
  arguments: [nodeArgument],
  options: [
    { flags: "--address <host:port>", doc: "where other members reach it" },
    { flags: "--zone <name>", doc: "rack, room or region; without it as before" },
  ],
  examples: [
    "cluster move 3 --address n3.example.org:7400",
    "cluster move 3 --address n3:7400 --zone rack2",
  ],
  show: async (input) => {
    const node = nodeOf(input);
    const address = input.options.needed("address", "--address");
    const zone = input.options.text("zone");
    const body = zone === undefined ? { address } : { address, zone };
    const value = await input.admin.moveSite({ params: { node }, body });
    return { value, table: () => `node ${node} is reached at ${address}\n` };
  },
});

const replicas = askCommand({
  name: "replicas",
  summary: "how many replicas shards need: no node goes while fewer would be left",
  arguments: [{ name: "[count]", doc: "1, 3, 5 or 7" }],
  examples: ["cluster replicas 3", "cluster replicas 3 -o json"],
  show: async (input) => {
    const text = argument(input, 0, "the count");
    if (!/^[1-7]$/.test(text))
      throw cliErrors.usage({ reason: `the count is 1 to 7, got "${text}"` });
    const count = Number(text);
    const value = await input.admin.setReplicas({ body: { count } });
    return { value, table: () => `shards need ${count} replicas\n` };
  },
});

export const cluster: CommandFamily = {
  name: "cluster",
  summary: "sites of a cluster: form, join, look, let go",
  commands: [status, init, join, leave, evacuate, stay, forget, move, replicas, recover],
  hasDefault: true,
};
