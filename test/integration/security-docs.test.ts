// Executes the marked commands of docs/operating/security.md as a reader would, and reads every
// configuration that it shows.

import { copyFileSync, readFileSync } from "node:fs";
import { type AddressInfo, createServer } from "node:net";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import { readConfig } from "../../src/node/index.ts";
import { parseDocument, runDocument } from "../support/readme-commands.ts";
import { withTemporaryFolder } from "../support/temporary-folder.ts";

const root = fileURLToPath(new URL("../..", import.meta.url));
const page = readFileSync(join(root, "docs/operating/security.md"), "utf8");

function freePort(): Promise<number> {
  return new Promise((resolve) => {
    const server = createServer().listen(0, "127.0.0.1", () => {
      const { port } = server.address() as AddressInfo;
      server.close(() => resolve(port));
    });
  });
}

test("the page's commands print what it shows", async () => {
  await withTemporaryFolder(async (folder) => {
    copyFileSync(join(root, "config/examples/rules.acl"), join(folder, "rules.acl"));
    const port = await freePort();
    const cli = `node ${join(root, "dist/cli/main.cjs")}`;
    const replace = (text: string): string =>
      text
        .replace(/(^|\| )flagstone /, `$1${cli} `)
        .replace(/(mosquitto_(?:pub|sub)) /, `$1 -p ${port} `)
        .replaceAll("1883", String(port));
    const commands = parseDocument(page);
    expect(commands.length).toBeGreaterThanOrEqual(12);
    expect(await runDocument(page, { cwd: folder, replace })).toBe(commands.length);
  });
});

test("every configuration on the page, and each example, is a good one", () => {
  const shown = [...page.matchAll(/```yaml\n(.*?)```/gs)].map(([, text = ""]) => text);
  expect(shown.length).toBe(2);
  const example = readFileSync(join(root, "config/examples/secure.yaml"), "utf8");
  for (const text of [...shown, example]) {
    const read = () => readConfig({ file: { name: "shown", bytes: Buffer.from(text) } });
    expect(read).not.toThrow();
  }
});
