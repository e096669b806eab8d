// The world of one conversation and its commands: members, network, and what each command does and
// prints (docs/raft-testing.md has the grammar). Time, randomness, network and disk are the
// script's; nothing happens between two commands.

import { createConfiguration } from "../core/membership.ts";
import type { MembershipChange, NodeId, RaftSettings, RaftStatus } from "../core/types.ts";
import { type Accepted, defaultRaftSettings, type Message, type Refused } from "../core/types.ts";
import { Member, textOf } from "./member.ts";
import { ScriptNetwork } from "./network.ts";
import {
  parseIds,
  parseLink,
  parseLinks,
  parseNumber,
  parseOptions,
  parsePositive,
  parseSelection,
  parseSwitch,
  ScriptError,
} from "./parse.ts";

/** Far more rounds than any conversation needs. */
const settleRoundsMax = 10_000;

const nodesMax = 100;

const optionNames = [
  "voters",
  "learners",
  "pre-vote",
  "check-quorum",
  "election",
  "heartbeat",
  "inflight",
  "append-max",
];

type Command = (world: ScriptWorld, words: readonly string[], line: string) => string[];

export class ScriptWorld {
  members = new Map<NodeId, Member>();
  network = new ScriptNetwork();

  /** Runs one line and returns what it prints. */
  run(line: string): string[] {
    const words = line.trim().split(/\s+/);
    const name = words[0] ?? "";
    const command = commands.get(name);
    try {
      if (command === undefined) throw new ScriptError(`unknown command ${name}`);
      return command(this, words.slice(1), line);
    } catch (error) {
      if (error instanceof Error) return [`error: ${error.message}`];
      throw error;
    }
  }

  get ids(): NodeId[] {
    return [...this.members.keys()];
  }

  member(word: string | undefined): Member {
    const id = parsePositive(word, "node");
    const member = this.members.get(id);
    if (member === undefined) throw new ScriptError(`there is no node ${id}`);
    return member;
  }

  running(word: string | undefined): Member {
    const member = this.member(word);
    if (!member.isUp) throw new ScriptError(`node ${member.id} is down`);
    return member;
  }
}

function nodes(world: ScriptWorld, words: readonly string[]): string[] {
  const count = parsePositive(words[0], "number of nodes");
  if (count > nodesMax) throw new ScriptError(`at most ${nodesMax} nodes`);
  const options = parseOptions(words.slice(1), optionNames);
  const all = Array.from({ length: count }, (_, place) => place + 1);
  const learners = listOption(options.get("learners"), []);
  const others = all.filter((id) => !learners.includes(id));
  const configuration = createConfiguration(listOption(options.get("voters"), others), learners);
  if (configuration.voters.some((id) => learners.includes(id))) {
    throw new ScriptError("a node is either a voter or a learner");
  }
  const settings = readSettings(options);
  world.network = new ScriptNetwork();
  world.members = new Map();
  for (const id of all) {
    const send = world.network.send.bind(world.network);
    world.members.set(id, new Member(id, configuration, settings, send));
  }
  return [];
}

function readSettings(options: ReadonlyMap<string, string>): RaftSettings {
  const number = (name: string, otherwise: number): number =>
    options.has(name) ? parsePositive(options.get(name), name) : otherwise;
  const electionTicks = number("election", 3);
  return {
    ...defaultRaftSettings,
    electionTicks,
    heartbeatTicks: number("heartbeat", 1),
    preVote: parseSwitch(options.get("pre-vote") ?? "off"),
    checkQuorum: parseSwitch(options.get("check-quorum") ?? "off"),
    inflightMessagesMax: number("inflight", defaultRaftSettings.inflightMessagesMax),
    appendEntriesMax: number("append-max", defaultRaftSettings.appendEntriesMax),
    snapshotTicks: 2 * electionTicks,
  };
}

// `-` is an empty list.
function listOption(word: string | undefined, otherwise: NodeId[]): NodeId[] {
  if (word === undefined) return otherwise;
  return word === "-" || word === "" ? [] : parseIds(word);
}

function propose(world: ScriptWorld, words: readonly string[], line: string): string[] {
  const { raft } = world.running(words[0]);
  const text = /^\s*\S+\s+\S+\s(.*)$/.exec(line)?.[1] ?? "";
  if (text === "") throw new ScriptError("propose needs a text");
  return verdict(raft.propose([{ version: 1, data: Buffer.from(text, "utf8") }]));
}

function member(world: ScriptWorld, words: readonly string[]): string[] {
  const { raft } = world.running(words[0]);
  const op = words[1];
  if (op !== "add" && op !== "remove" && op !== "learner" && op !== "promote") {
    throw new ScriptError(`unknown change ${op}`);
  }
  const change: MembershipChange = { op, node: parsePositive(words[2], "node") };
  return verdict(raft.proposeMembership(change));
}

function tick(world: ScriptWorld, words: readonly string[]): string[] {
  const { raft } = world.running(words[0]);
  const count = words[1] === undefined ? 1 : parseNumber(words[1], "ticks");
  for (let done = 0; done < count; done++) raft.tick();
  return [];
}

function deliver(world: ScriptWorld, words: readonly string[]): string[] {
  for (const parcel of world.network.take(parseSelection(words))) {
    const to = world.members.get(parcel.message.to);
    if (to?.isUp) to.receive(parcel);
  }
  return [];
}

function duplicate(world: ScriptWorld, words: readonly string[]): string[] {
  for (const parcel of world.network.select(parseSelection(words))) {
    world.network.send({ ...parcel });
  }
  return [];
}

function inject(world: ScriptWorld, words: readonly string[]): string[] {
  const { from, to } = parseLink(words[0] ?? "");
  if (words[1] !== "append") throw new ScriptError("only an append can be injected");
  const options = parseOptions(words.slice(2), ["term", "prev", "commit"]);
  const [prevIndex, prevTerm] = (options.get("prev") ?? "").split("/");
  const message: Message = {
    type: "append",
    from,
    to,
    term: parseNumber(options.get("term"), "term"),
    prevIndex: parseNumber(prevIndex, "index"),
    prevTerm: parseNumber(prevTerm, "term"),
    commit: parseNumber(options.get("commit"), "commit"),
    entries: [],
  };
  // It arrives at once, unless the link is cut: a script says when by where it stands.
  const receiver = world.running(String(to));
  if (!world.network.isCut({ from, to })) receiver.receive({ message });
  return [];
}

function cut(world: ScriptWorld, words: readonly string[]): string[] {
  world.network.cut(parseLinks(words[0] ?? "", world.ids));
  return [];
}

function heal(world: ScriptWorld, words: readonly string[]): string[] {
  if (words[0] === undefined) world.network.healAll();
  else world.network.heal(parseLinks(words[0], world.ids));
  return [];
}

function settle(world: ScriptWorld, words: readonly string[]): string[] {
  const members =
    words[0] === undefined
      ? [...world.members.values()].filter((each) => each.isUp)
      : words[0].split(",").map((word) => world.running(word));
  const among = new Set(members.map((each) => each.id));
  for (let round = 0; round < settleRoundsMax; round++) {
    let worked = false;
    for (const each of members) worked = each.ready() || worked;
    for (const parcel of world.network.takeAmong(among)) {
      worked = true;
      world.members.get(parcel.message.to)?.receive(parcel);
    }
    if (!worked) return [];
  }
  throw new ScriptError("the nodes never come to rest");
}

const fields = [
  "role",
  "term",
  "leader",
  "commit",
  "applied",
  "last",
  "vote",
  "voters",
  "learners",
];

function show(world: ScriptWorld, words: readonly string[]): string[] {
  const named = words.filter((word) => fields.includes(word));
  const rest = words.filter((word) => !fields.includes(word));
  if (rest.length > 1) throw new ScriptError(`unknown field ${rest[1]}`);
  if (rest[0] !== undefined && !/^[\d,]+$/.test(rest[0])) {
    throw new ScriptError(`unknown field ${rest[0]}`);
  }
  const members =
    rest[0] === undefined
      ? [...world.members.values()].filter((each) => each.isUp)
      : rest[0].split(",").map((word) => world.member(word));
  return members.map((each) => {
    if (!each.isUp) return `${each.id} down`;
    const texts = describe(each.raft.status());
    const wanted = fields.filter((field) => named.length === 0 || named.includes(field));
    return [each.id, ...wanted.map((field) => texts.get(field))].join(" ");
  });
}

function describe(status: RaftStatus): Map<string, string> {
  const list = (ids: readonly NodeId[]): string => (ids.length === 0 ? "-" : ids.join(","));
  const node = (id: NodeId): string => (id === 0 ? "-" : String(id));
  return new Map([
    ["role", status.role],
    ["term", `term=${status.term}`],
    ["leader", `leader=${node(status.leader)}`],
    ["commit", `commit=${status.commit}`],
    ["applied", `applied=${status.applied}`],
    ["last", `last=${status.lastIndex}`],
    ["vote", `vote=${node(status.vote)}`],
    ["voters", `voters=${list(status.configuration.voters)}`],
    ["learners", `learners=${list(status.configuration.learners)}`],
  ]);
}

function showLog(world: ScriptWorld, words: readonly string[]): string[] {
  const { raft } = world.running(words[0]);
  return raft.entries().map((entry) => `${entry.index}/${entry.term}/${textOf(entry)}`);
}

function restart(world: ScriptWorld, words: readonly string[]): string[] {
  const each = world.member(words[0]);
  if (each.isUp) throw new ScriptError(`node ${each.id} is up`);
  each.restart();
  return [];
}

function compact(world: ScriptWorld, words: readonly string[]): string[] {
  const each = world.running(words[0]);
  return each.compact(parseNumber(words[1], "index")) ? [] : ["refused"];
}

function read(world: ScriptWorld, words: readonly string[]): string[] {
  const { raft } = world.running(words[0]);
  if (words[1] === undefined) throw new ScriptError("read needs a context");
  return verdict(raft.readIndex(words[1]));
}

function verdict(answer: Accepted | Refused): string[] {
  return answer.accepted ? [] : ["refused"];
}

const commands: ReadonlyMap<string, Command> = new Map<string, Command>([
  ["nodes", nodes],
  ["campaign", (world, words) => verdict(world.running(words[0]).raft.campaign())],
  ["propose", propose],
  ["member", member],
  [
    "transfer",
    (world, words) =>
      verdict(world.running(words[0]).raft.transfer(parsePositive(words[1], "node"))),
  ],
  ["read", read],
  ["tick", tick],
  ["ready", (world, words) => quietly(world.running(words[0]).ready())],
  ["persist", persist],
  ["deliver", deliver],
  ["drop", (world, words) => quietly(world.network.take(parseSelection(words)))],
  ["dup", duplicate],
  ["inject", inject],
  ["cut", cut],
  ["heal", heal],
  ["settle", settle],
  ["crash", (world, words) => quietly(world.running(words[0]).crash())],
  ["restart", restart],
  ["compact", compact],
  ["show", show],
  ["log", showLog],
  ["applied", (world, words) => world.running(words[0]).texts],
  [
    "reads",
    (world, words) =>
      world
        .running(words[0])
        .takeReads()
        .map((each) => `${each.context} ${each.index}`),
  ],
]);

function persist(world: ScriptWorld, words: readonly string[]): string[] {
  world.running(words[0]).persists = parseSwitch(words[1]);
  return [];
}

function quietly(_done: unknown): string[] {
  return [];
}
