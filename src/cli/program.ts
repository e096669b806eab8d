// The command line: finds the command, loads its module (only that one, for a quick first output),
// parses its flags, runs it and turns errors into one sentence and an exit code.
// The one home of commander. `-h` is a host in Mosquitto's flags, so help is `--help` everywhere.

import { Command as Commander, CommanderError, Option } from "commander";
import { type Command, type CommandFamily, type Io, type OptionSpec, Options } from "./command.ts";
import { commandRows } from "./commands/rows.ts";
import { cliErrors } from "./errors.ts";
import { exitCodes } from "./exit-codes.ts";
import { reportError } from "./report.ts";

/** Runs one command line and returns its exit code. Never throws. */
export function runCli(argv: readonly string[], io: Io): Promise<number> {
  return guarded(() => parseAndRun(argv, io), io);
}

/** Runs a command that is at hand, with the arguments behind its name. */
export function runCommand(spec: Command, argv: readonly string[], io: Io): Promise<number> {
  return guarded(async () => {
    let exitCode: number = exitCodes.ok;
    const commander = commandOf(spec, io, (code) => {
      exitCode = code;
    });
    await commander.parseAsync([...argv], { from: "user" });
    return exitCode;
  }, io);
}

async function guarded(work: () => Promise<number>, io: Io): Promise<number> {
  try {
    return await work();
  } catch (error) {
    if (!(error instanceof CommanderError)) return reportError(error, io);
    // Help that was asked for ends well; everything else commander says is about usage.
    return error.exitCode === 0 ? exitCodes.ok : exitCodes.usage;
  }
}

async function parseAndRun(given: readonly string[], io: Io): Promise<number> {
  // Asked of every program, so answered; `-V` is the protocol's here, as in Mosquitto's clients.
  const argv = given[0] === "--version" ? ["version", ...given.slice(1)] : given;
  const program = bare(
    "flagstone",
    "A durable MQTT message store with a broker in front of it",
    io,
  );
  let exitCode: number = exitCodes.ok;
  const finish = (code: number): void => {
    exitCode = code;
  };
  const [first, second] = argv;
  for (const row of commandRows) {
    if (row.name === first) {
      const spec = await row.load();
      checkFamily(spec, second);
      program.addCommand(commandOf(spec, io, finish));
    } else {
      // Only its line of the overview is needed.
      program.addCommand(bare(row.name, row.summary, io));
    }
  }
  program.addHelpText("after", `\n${overviewExamples(io)}`);
  if (first === undefined) {
    program.outputHelp();
    return exitCodes.usage;
  }
  await program.parseAsync([...argv], { from: "user" });
  return exitCode;
}

/** Looked for in a family where it stands by itself: `config reload`. @throws CLI_USAGE. */
function checkFamily(spec: Command | CommandFamily, inner: string | undefined): void {
  // Of one with a default, the next word may be an argument.
  if (!("commands" in spec) || spec.hasDefault === true) return;
  if (spec.commands.some(({ name }) => name === inner)) return;
  if (!commandRows.some(({ name }) => name === inner)) return;
  const reason = `there is no \`${spec.name} ${inner}\`: did you mean \`flagstone ${inner}\`?`;
  throw cliErrors.usage({ reason });
}

function overviewExamples(io: Io): string {
  return [
    "Examples:",
    `  ${io.command} start --data ./data --port 1883`,
    `  ${io.command} sub -t 'demo/#' -v`,
  ].join("\n");
}

function bare(name: string, summary: string, io: Io): Commander {
  const commander = new Commander(name).description(summary);
  commander.helpOption("--help", "show this help").helpCommand(false).exitOverride();
  commander.configureOutput({
    writeOut: (text) => io.out(text),
    writeErr: (text) => io.error(text),
    outputError: (text, write) => write(text.replace(/^error: /, "")),
  });
  return commander;
}

type Finish = (exitCode: number) => void;

function commandOf(spec: Command | CommandFamily, io: Io, finish: Finish): Commander {
  const commander = bare(spec.name, spec.summary, io);
  if ("commands" in spec) {
    for (const [index, inner] of spec.commands.entries()) {
      const isDefault = spec.hasDefault === true && index === 0;
      commander.addCommand(commandOf(inner, io, finish), { isDefault });
    }
    addExamples(commander, [spec.commands[0], ...spec.commands.slice(-1)], io);
    return commander;
  }
  for (const argument of spec.arguments ?? []) commander.argument(argument.name, argument.doc);
  for (const option of spec.options) commander.addOption(optionOf(option));
  addExamples(commander, [spec], io);
  commander.action(async () => {
    const options = new Options(commander.opts());
    finish(await spec.run({ arguments: commander.args, options, io }));
  });
  return commander;
}

/** Two lines to copy. */
function addExamples(commander: Commander, specs: readonly Command[], io: Io): void {
  const lines = specs.flatMap(({ examples }) => examples).slice(0, 2);
  const examples = lines.map((line) => `  ${io.command} ${line}`).join("\n");
  commander.addHelpText("after", `\nExamples:\n${examples}`);
}

function optionOf(spec: OptionSpec): Option {
  const option = new Option(spec.flags, spec.doc);
  if (spec.fallback !== undefined) option.default(spec.fallback);
  if (spec.choices !== undefined) option.choices(spec.choices);
  if (spec.repeats) {
    option.argParser((value: string, before: string[] | undefined) => [...(before ?? []), value]);
  }
  return option;
}
