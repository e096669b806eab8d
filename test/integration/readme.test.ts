// Executes the README's marked commands as a reader would, in a copy of the project without data, on
// a free port. While there is no broker the README must say so and mark nothing.

import { existsSync, readFileSync, symlinkSync } from "node:fs";
import { cp } from "node:fs/promises";
import { type AddressInfo, createServer } from "node:net";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import { parseDocument, runDocument } from "../support/readme-commands.ts";
import { withTemporaryFolder } from "../support/temporary-folder.ts";

const root = fileURLToPath(new URL("../..", import.meta.url));
const readme = readFileSync(join(root, "README.md"), "utf8");
const hasBroker = existsSync(join(root, "src/broker/index.ts"));

function freePort(): Promise<number> {
  return new Promise((resolve) => {
    const server = createServer().listen(0, "127.0.0.1", () => {
      const { port } = server.address() as AddressInfo;
      server.close(() => resolve(port));
    });
  });
}

test("the README tells whether there is a broker to run", () => {
  expect(readme.includes("does not start\nyet")).toBe(!hasBroker);
  expect(parseDocument(readme).length > 0).toBe(hasBroker);
});

test("the README's commands print what it shows", async () => {
  await withTemporaryFolder(async (folder) => {
    const parts = "src scripts package.json package-lock.json tsconfig.json".split(" ");
    for (const part of parts) await cp(join(root, part), join(folder, part), { recursive: true });
    symlinkSync(join(root, "node_modules"), join(folder, "node_modules"));
    const port = await freePort();
    // `npm start` has no port in the README: it is the default that a reader sees.
    const replace = (text: string): string =>
      text
        .replace(/^npm start$/, `npm start -- --port ${port}`)
        .replace(/(mosquitto_(?:pub|sub))(?! -p)/g, `$1 -p ${port}`)
        .replaceAll("1883", String(port));
    const count = parseDocument(readme).length;
    expect(await runDocument(readme, { cwd: folder, replace })).toBe(count);
  });
});
