import { chmodSync, chownSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { runCli } from "../../../src/cli/program.ts";
import { createFakeIo } from "../../support/fake-io.ts";
import { withTemporaryFolder } from "../../support/temporary-folder.ts";

const add = (name: string, file: string): Promise<number> =>
  runCli(["user", "add", name, "--scram", "--file", file], createFakeIo({ stdin: "word\n" }));
const modeOf = (path: string): number => statSync(path).mode & 0o777;

test("a password file is its owner's; the broker's group goes on reading it, others never", () =>
  withTemporaryFolder(async (folder) => {
    const path = join(folder, "users.txt");
    expect(await add("alice", path)).toBe(0);
    expect(modeOf(path)).toBe(0o600);
    chmodSync(path, 0o664);
    expect(await add("bob", path)).toBe(0);
    expect(modeOf(path)).toBe(0o640);
  }));

test("root changes a password file and leaves its owner", () =>
  withTemporaryFolder(async (folder) => {
    const path = join(folder, "users.txt");
    await add("alice", path);
    // Only root can show it: for others both owners are themselves.
    if (process.getuid?.() === 0) chownSync(path, 1234, 5678);
    const { uid, gid } = statSync(path);
    expect(await add("bob", path)).toBe(0);
    expect(statSync(path)).toMatchObject({ uid, gid });
  }));

test("comments and the lines of others stay as they are when a user comes, changes or goes", () =>
  withTemporaryFolder(async (folder) => {
    const path = join(folder, "users.txt");
    await add("alice", path);
    const alice = readFileSync(path, "utf8").trimEnd();
    writeFileSync(path, `# bob: left in May\n\n${alice}\r\n# the end`);
    expect(await add("bob", path)).toBe(0);
    const [line] = readFileSync(path, "utf8").trimEnd().split("\n").slice(-1);
    expect(line).toMatch(/^bob:\$scram/);
    expect(readFileSync(path, "utf8")).toBe(
      `# bob: left in May\n\n${alice}\r\n# the end\n${line}\n`,
    );
    const passwd = ["user", "passwd", "alice", "--scram", "--file", path];
    expect(await runCli(passwd, createFakeIo({ stdin: "other\n" }))).toBe(0);
    const changed = readFileSync(path, "utf8").split("\n");
    expect(changed[2]).toMatch(/^alice:\$scram/);
    expect(changed[2]).not.toBe(`${alice}\r`);
    expect(await runCli(["user", "rm", "alice", "--file", path], createFakeIo())).toBe(0);
    expect(readFileSync(path, "utf8")).toBe(`# bob: left in May\n\n# the end\n${line}\n`);
  }));
