import { readdirSync, readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { CodedError, diskErrors } from "../../../src/base/index.ts";
import { commandRows } from "../../../src/cli/commands/rows.ts";
import { errorRows } from "../../../src/cli/error-tables.ts";
import { exitCodeOf } from "../../../src/cli/exit-codes.ts";
import { runCli } from "../../../src/cli/program.ts";
import { cliReference, errorReference } from "../../../src/cli/reference.ts";
import { kvErrors } from "../../../src/kv/index.ts";
import { logErrors } from "../../../src/log/index.ts";
import { configErrors, nodeErrors } from "../../../src/node/errors.ts";
import { storeErrors } from "../../../src/store/index.ts";
import { createFakeIo } from "../../support/fake-io.ts";

const root = new URL("../../../", import.meta.url);
const read = (path: string): string => readFileSync(new URL(path, root), "utf8");

async function cli(...argv: string[]) {
  const io = createFakeIo({ environment: { FLAGSTONE__MQTT__INFLIGHT_MAX: "7" } });
  return { exit: await runCli(argv, io), out: io.stdout(), error: io.stderr() };
}

test("--help names every command and two lines to copy", async () => {
  const { exit, out } = await cli("--help");
  expect(exit).toBe(0);
  for (const { name, summary } of commandRows)
    expect(out).toMatch(new RegExp(`${name} .*${summary}`));
  expect(out).toContain("  flagstone start --data ./data --port 1883\n");
});

test("no command at all is a usage error that shows the help", async () => {
  const { exit, out } = await cli();
  expect(exit).toBe(2);
  expect(out).toContain("Usage: flagstone");
});

test.each(commandRows.map(({ name }) => name))(
  "%s --help ends well with examples",
  async (name) => {
    const { load } = commandRows.find((row) => row.name === name)!;
    const spec = await load();
    const lines = "commands" in spec ? spec.commands.map((inner) => [name, inner.name]) : [[name]];
    for (const line of lines) {
      const { exit, out } = await cli(...line, "--help");
      expect(exit).toBe(0);
      expect(out).toMatch(/\nExamples:\n {2}flagstone .+\n {2}flagstone .+\n/);
    }
  },
);

test("an unknown command or flag is a usage error that names the nearest", async () => {
  const command = await cli("strat");
  expect(command.exit).toBe(2);
  expect(command.error).toContain("Did you mean start?");
  const flag = await cli("config", "show", "--orgin");
  expect(flag.exit).toBe(2);
  expect(flag.error).toContain("Did you mean --origin?");
});

test("a command that was looked for in a family is named where it stands", async () => {
  for (const [family, inner] of [
    ["config", "reload"],
    ["config", "doctor"],
    ["user", "status"],
  ] as const) {
    const { exit, error } = await cli(family, inner, "--dry-run");
    expect(exit).toBe(2);
    expect(error).toContain(
      `there is no \`${family} ${inner}\`: did you mean \`flagstone ${inner}\`?`,
    );
  }
  // Its own, or none at all.
  expect((await cli("config", "show")).exit).toBe(0);
  expect((await cli("config", "shwo")).error).toContain("Did you mean show?");
});

test("--version is answered as the command is", async () => {
  const { exit, out } = await cli("--version");
  expect(exit).toBe(0);
  expect(out).toBe((await cli("version")).out);
});

test("config show prints what holds and where it came from", async () => {
  const { exit, out } = await cli(
    "config",
    "show",
    "--origin",
    "--port",
    "2883",
    "--set",
    "data.dir=x",
  );
  expect(exit).toBe(0);
  expect(out).toMatch(/port: 2883 +# --port\n/);
  expect(out).toMatch(/dir: x +# --set data\.dir\n/);
  expect(out).toMatch(/inflightMax: 7 +# environment FLAGSTONE__MQTT__INFLIGHT_MAX\n/);
});

test("config check ends with 3 and all faults", async () => {
  const { exit, error, out } = await cli("config", "check", "--port", "x", "--set", "a=1");
  expect(exit).toBe(3);
  expect(out).toBe("");
  expect(error).toContain('--port: listeners.tcp.port: got "x", expected a port number');
  expect(error).toContain('--set a: unknown key "a"');
  expect(error).toContain("2 faults in the configuration\n");
});

test("config check takes the file as argument, and says how much it gives", async () => {
  const good = await cli("config", "check", new URL("config/flagstone.yaml", root).pathname);
  expect(good).toMatchObject({ exit: 0, error: "" });
  expect(good.out).toMatch(/^configuration is good: 1 of \d+ keys given\n$/);
});

test("a configuration file that is not there ends with 3", async () => {
  const { exit, error } = await cli("config", "check", "/nowhere.yaml");
  expect(exit).toBe(3);
  expect(error).toBe('cannot read the configuration file "/nowhere.yaml": no such file\n');
});

test("config schema is the one in the tree", async () => {
  expect((await cli("config", "schema")).out).toBe(read("config/flagstone.schema.json"));
});

test("explain says what happened and what to do", async () => {
  const { exit, out } = await cli("explain", "node_data_dir_in_use");
  expect(exit).toBe(0);
  expect(out).toContain("NODE_DATA_DIR_IN_USE (invalid)\n");
  expect(out).toContain("One node per data directory.");
});

test("explain of an unknown code is a usage error with what is near", async () => {
  const { exit, error } = await cli("explain", "NODE_DATADIR_IN_USE");
  expect(exit).toBe(2);
  expect(error).toMatch(/did you mean .*\bNODE_DATA_DIR_IN_USE\b/);
});

test("explain knows every error table of the source", () => {
  const known = new Set(errorRows().map(({ code }) => code));
  const sources = readdirSync(new URL("src", root), { recursive: true, encoding: "utf8" })
    .filter((path) => path.endsWith(".ts"))
    .map((path) => read(`src/${path}`))
    .filter((text) => text.includes("defineErrors({"));
  const codes = sources.flatMap((text) =>
    [...text.matchAll(/^\s+code: "([A-Z0-9_]+)",$/gm)].map(([, code]) => code ?? ""),
  );
  expect(codes.length).toBeGreaterThan(20);
  expect(codes.filter((code) => !known.has(code))).toEqual([]);
});

test("no two rows share a code, and every row says what to do", () => {
  const rows = errorRows();
  expect(new Set(rows.map(({ code }) => code)).size).toBe(rows.length);
  for (const row of rows) expect(row.help).toMatch(/^.+[.?]$/);
});

test("version names the package and the platform", async () => {
  const { out } = await cli("version");
  const { version } = JSON.parse(read("package.json"));
  expect(out).toMatch(new RegExp(`^flagstone ${version} \\(node \\d+\\.\\d+\\.\\d+, \\w+\\)\\n$`));
});

test("exit codes follow the error", () => {
  expect(exitCodeOf(configErrors.invalid({ text: "" }))).toBe(3);
  expect(exitCodeOf(nodeErrors.dataDirInUse({ path: "" }))).toBe(4);
  expect(exitCodeOf(nodeErrors.listenFailed({}))).toBe(4);
  expect(exitCodeOf(nodeErrors.failed({ reason: "" }))).toBe(5);
  expect(exitCodeOf(diskErrors.failed({}))).toBe(5);
  expect(exitCodeOf(logErrors.failed({}))).toBe(5);
  expect(exitCodeOf(kvErrors.failed({}))).toBe(5);
  expect(exitCodeOf(logErrors.damaged({}))).toBe(4);
  expect(exitCodeOf(storeErrors.formatNewer({}))).toBe(4);
  expect(exitCodeOf(new CodedError("OTHER_X", "internal", "", {}))).toBe(70);
  // Those that a node answered with: its storage is not this command's, a configuration is the caller's.
  expect(exitCodeOf(new CodedError("DISK_FAILED", "internal", "", { status: 500 }))).toBe(1);
  expect(exitCodeOf(new CodedError("CONFIG_INVALID", "invalid", "", { status: 400 }))).toBe(3);
  expect(exitCodeOf(new TypeError("x"))).toBe(70);
});

test("docs/reference/cli.md is what the commands say (else: npm run docs)", async () => {
  expect(read("docs/reference/cli.md")).toBe(await cliReference());
});

test("docs/reference/errors.md is what the error tables say (else: npm run docs)", () => {
  expect(read("docs/reference/errors.md")).toBe(errorReference());
});
