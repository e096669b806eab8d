// `flagstone cluster recover`: what a stopped member still holds, beside what others hold, and how it
// goes on alone where the majority is lost for good.

import { readFile } from "node:fs/promises";
import type { MemberSurvey } from "../../node/cluster/offline.ts";
import { type Column, formatOf, grouped, outputOption, printed, tableOf } from "../admin/output.ts";
import type { Command } from "../command.ts";
import { configOptions } from "../config-flags.ts";
import { cliErrors } from "../errors.ts";
import { exitCodes } from "../exit-codes.ts";
import { memberOf, settingsOf } from "./cluster-settings.ts";

type Replica = MemberSurvey["replicas"][number];
type Row = Replica & { readonly behind: number };

const columns: readonly Column<Row>[] = [
  { head: "GROUP", cell: (row) => row.group, isRight: true },
  { head: "NODE", cell: (row) => row.node, isRight: true },
  { head: "EPOCH", cell: (row) => row.epoch, isRight: true },
  { head: "TERM", cell: (row) => row.lastTerm, isRight: true },
  { head: "INDEX", cell: (row) => grouped(row.lastIndex), isRight: true },
  { head: "WRITTEN", cell: (row) => row.lastTime },
  { head: "BEHIND", cell: (row) => grouped(row.behind), isRight: true },
  { head: "UNSURE", cell: (row) => grouped(row.lastIndex - row.commit), isRight: true },
  { head: "VOTERS", cell: (row) => row.configuration.voters.join(" ") },
  { head: "DAMAGE", cell: (row) => row.damage },
];

export const recover: Command = {
  name: "recover",
  summary: "go on with this stopped node alone, where a majority is lost for good",
  options: [
    ...configOptions,
    { flags: "--with <file>", doc: "what another node printed with -o json", repeats: true },
    { flags: "--confirm <words>", doc: "the words that a look shows, and it is done" },
    outputOption,
  ],
  examples: [
    "cluster recover --config cluster.yaml -o json",
    "cluster recover --config cluster.yaml --with n2.json",
  ],
  run: async (input) => {
    const { options, io } = input;
    const settings = await settingsOf(input);
    const { name } = memberOf(settings, "recover");
    const { recoverMember, surveyMember } = await import("../../node/cluster/offline.ts");
    const confirm = options.text("confirm");
    if (confirm !== undefined) {
      const { node } = await recoverMember(settings, confirm);
      io.out(`node ${node} is the only voter of all its groups: start it, then\n`);
      io.out("`cluster replicas 1`, and `cluster forget` for each of the nodes that are lost\n");
      return exitCodes.ok;
    }
    const own = await surveyMember(settings);
    const others = await Promise.all(options.texts("with").map(readSurvey));
    const isSame = ({ cluster }: MemberSurvey): boolean => cluster === own.cluster;
    if (!others.every(isSame)) {
      throw cliErrors.usage({ reason: `--with names what is not of the cluster ${name}` });
    }
    io.out(printed(formatOf(input), own, () => textOf(own, others)));
    return exitCodes.ok;
  },
};

async function readSurvey(path: string): Promise<MemberSurvey> {
  try {
    const survey = JSON.parse(await readFile(path, "utf8")) as Partial<MemberSurvey>;
    if (typeof survey.cluster === "string" && Array.isArray(survey.replicas)) {
      return survey as MemberSurvey;
    }
  } catch {
    // Told below, as any other file that is none.
  }
  const reason = `${path} is not what \`cluster recover -o json\` prints at a node`;
  throw cliErrors.usage({ reason });
}

function textOf(own: MemberSurvey, others: readonly MemberSurvey[]): string {
  const all = [own, ...others].flatMap(({ replicas }) => replicas);
  const groups = [...new Set(all.map(({ group }) => group))].sort((one, other) => one - other);
  const rows = groups.flatMap((group) => ranked(all.filter((each) => each.group === group)));
  const { fault, confirmation } = own;
  const way =
    fault === undefined
      ? `Nothing is changed. Entries that a lost node alone had are gone for good, acknowledged or not:
take the node that is behind in no group. To go on with this one alone, say the same with
  --confirm "${confirmation}"\n`
      : `This node cannot go on alone: ${fault}.\n`;
  return `${tableOf(rows, columns)}${way}`;
}

/** The one that holds the most first. REQUIRES: of one group. */
function ranked(replicas: readonly Replica[]): Row[] {
  const most = Math.max(...replicas.map(({ lastIndex }) => lastIndex));
  return replicas
    .toSorted((a, b) => b.epoch - a.epoch || b.lastTerm - a.lastTerm || b.lastIndex - a.lastIndex)
    .map((each) => ({ ...each, behind: most - each.lastIndex }));
}
