// Executes the README's marked commands as a reader would, in a copy of the project without data, on
// a free port: `npm start` sets up and builds, Debian's mosquitto clients and MQTT.js talk to it.

import { readFileSync, symlinkSync } from "node:fs";
import { cp } from "node:fs/promises";
import { type AddressInfo, createServer } from "node:net";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import { parseDocument, runDocument } from "../support/readme-commands.ts";
import { withTemporaryFolder } from "../support/temporary-folder.ts";

const root = fileURLToPath(new URL("../..", import.meta.url));
const readme = readFileSync(join(root, "README.md"), "utf8");
const copied = "src scripts examples package.json package-lock.json tsconfig.json".split(" ");

function freePort(): Promise<number> {
  return new Promise((resolve) => {
    const server = createServer().listen(0, "127.0.0.1", () => {
      const { port } = server.address() as AddressInfo;
      server.close(() => resolve(port));
    });
  });
}

test("the README's commands print what it shows", async () => {
  await withTemporaryFolder(async (folder) => {
    for (const part of copied) await cp(join(root, part), join(folder, part), { recursive: true });
    symlinkSync(join(root, "node_modules"), join(folder, "node_modules"));
    const [port, adminPort] = [await freePort(), await freePort()];
    // `npm start` has no ports in the README: they are the defaults that a reader sees.
    const replace = (text: string): string =>
      text
        .replace(/^npm start$/, `npm start -- --port ${port} --admin-port ${adminPort}`)
        .replaceAll("18083", String(adminPort))
        .replace(/^(mosquitto_(?:pub|sub)) /, `$1 -p ${port} `)
        .replaceAll(/\b1883\b/g, String(port));
    const commands = parseDocument(readme);
    expect(commands.filter(({ command }) => command.startsWith("mosquitto_")).length).toBe(5);
    expect(await runDocument(readme, { cwd: folder, replace })).toBe(commands.length);
  });
});

test("listings of the README are parts of the files they name", () => {
  const listings = [...readme.matchAll(/\[(examples\/[\w.-]+)\].*?```js\n(.*?)```/gs)];
  expect(listings.map(([, file]) => file)).toEqual(["examples/durable.mjs"]);
  for (const [, file = "", code = ""] of listings) {
    expect(readFileSync(join(root, file), "utf8")).toContain(code);
  }
});
