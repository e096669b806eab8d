// What the README and the pages about embedding show is run, word for word: each block of JavaScript
// stands in one program here, between what a reader would have around it. Only ports and the name of
// a package for LevelDB are replaced.

import { execFile } from "node:child_process";
import { mkdir, readFile, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { expect, test } from "vitest";
import { withTemporaryFolder } from "../support/temporary-folder.ts";

const root = fileURLToPath(new URL("../..", import.meta.url));
const execute = promisify(execFile);

type Program = {
  readonly name: string;
  /** Blocks of the page by number, in the order of the program. */
  readonly blocks: readonly number[];
  readonly before?: string;
  readonly after: string;
  readonly says: string;
};

type Page = {
  readonly path: string;
  readonly section?: RegExp;
  readonly programs: readonly Program[];
};

/** An MQTT client against the server that the block has made. */
const useAedes = `
import mqtt from "mqtt";
const { port } = await opened;
const client = await mqtt.connectAsync("mqtt://127.0.0.1:" + port);
await client.publishAsync("a", "kept", { qos: 1, retain: true });
await client.endAsync();
const [packet] = await persistence.createRetainedStream("a").toArray();
console.log(packet.payload.toString());
`;

/** The block does not keep its server: it is found as it listens. */
const openedServer = `
import { Server } from "node:net";
const listen = Server.prototype.listen;
let told;
const opened = new Promise((resolve) => { told = resolve; });
Server.prototype.listen = function (...args) {
  this.once("listening", () => told(this.address()));
  return listen.apply(this, args);
};
`;

const pages: readonly Page[] = [
  {
    path: "README.md",
    section: /^## Inside a Node program$(.*?)^## /ms,
    programs: [
      {
        name: "a broker in memory",
        blocks: [0],
        after: `
console.log((await broker.retained("greeting")).payload.toString());
await broker.close();`,
        says: "hello\n",
      },
      {
        name: "Aedes",
        blocks: [1],
        before: openedServer,
        after: `${useAedes}
await persistence.destroy();
process.exit();`,
        says: "kept\n",
      },
    ],
  },
  {
    path: "docs/embedding.md",
    programs: [
      {
        name: "a broker, used from inside",
        blocks: [0, 1],
        before: `const handle = (topic, payload) => { console.log(topic, payload.toString()); broker.close(); };`,
        after: `console.log("the loop has ended");`,
        says: "plant/7/state on\nthe loop has ended\n",
      },
      {
        name: "hooks",
        blocks: [2],
        before: `
import mqtt from "mqtt";
import { createBroker } from "flagstone";
const known = async (name, password) => name === "anna" && password.toString() === "right";`,
        after: `
const login = { username: "anna", password: "right", protocolVersion: 5, reconnectPeriod: 0 };
const client = await mqtt.connectAsync(broker.url, login);
await client.publishAsync("anna/a", "x", { qos: 1 });
const refused = await client.publishAsync("other", "x", { qos: 1 }).catch(({ code }) => code);
await client.endAsync();
const wrong = { ...login, password: "wrong" };
const stranger = await mqtt.connectAsync(broker.url, wrong).catch(({ code }) => code);
console.log(refused, stranger);
await broker.close();`,
        says: "135 134\n",
      },
      {
        name: "a test of one's own programs",
        blocks: [3],
        before: `import { createBroker } from "flagstone";`,
        after: `
await broker.clock.advance(1000);
await broker.crash();
await broker.close();
console.log("fine");`,
        says: "fine\n",
      },
      {
        name: "the store alone",
        blocks: [4],
        after: `
console.log(store.logShards.length);
await close();`,
        says: "4\n",
      },
    ],
  },
  {
    path: "docs/operating/aedes.md",
    programs: [
      {
        name: "ten lines",
        blocks: [0],
        before: openedServer,
        after: `${useAedes}
process.kill(process.pid, "SIGTERM");`,
        says: "kept\n",
      },
      {
        name: "several Aedes",
        blocks: [1],
        before: `
import { Aedes } from "aedes";
import { createBroker } from "flagstone";
import { openPersistence } from "flagstone/aedes";
const broker = await createBroker({ memory: true });
const persistence = await openPersistence({ dir: "./aedes-data" });`,
        after: `
const other = new FlagstoneEmitter(mqtt.connect(broker.url, { protocolVersion: 5 }), { id: "two" });
const heard = new Promise((resolve) => other.on("a", ({ payload }, done) => { resolve(payload.toString()); done(); }, () => aedes.publish({ cmd: "publish", topic: "a", payload: Buffer.from("hello"), qos: 0, retain: false, dup: false }, () => undefined)));
console.log(await heard);
process.exit();`,
        says: "hello\n",
      },
      {
        name: "coming from another persistence",
        blocks: [2],
        after: `
console.log(counts.queued);
process.exit();`,
        says: "{\n  subscription: 0,\n  queued: 0,\n  inbound: 0,\n  retained: 0,\n  will: 0,\n  skipped: 0\n}\n0\n",
      },
    ],
  },
];

async function blocksOf({ path, section }: Page): Promise<string[]> {
  const text = await readFile(join(root, path), "utf8");
  const part = section === undefined ? text : (section.exec(text)?.[1] ?? "");
  return [...part.matchAll(/```js\n(.*?)```/gs)].map(([, code = ""]) => code);
}

/** Ports that a test may have, and LevelDB by the package that is here. */
function placed(code: string): string {
  return code
    .replace('from "level"', 'from "classic-level"')
    .replace("{ Level }", "{ ClassicLevel as Level }")
    .replace('"mqtt://127.0.0.1:1883"', "broker.url")
    .replace("port: 1883", "port: 0")
    .replace("listen(1883)", 'listen(0, "127.0.0.1")');
}

for (const page of pages) {
  test(`every block of ${page.path} is in a program here`, async () => {
    const numbers = page.programs.flatMap(({ blocks }) => blocks).sort();
    expect(numbers).toEqual([...(await blocksOf(page)).keys()]);
  });

  for (const { name, blocks, before = "", after, says } of page.programs) {
    test(`${page.path}: ${name}`, () =>
      withTemporaryFolder(async (folder) => {
        const all = await blocksOf(page);
        const code = blocks.map((number) => placed(all[number] ?? "")).join("\n");
        await mkdir(join(folder, "node_modules"));
        await symlink(root, join(folder, "node_modules/flagstone"));
        for (const dependency of ["aedes", "mqtt", "classic-level"]) {
          const link = join(folder, "node_modules", dependency);
          await symlink(join(root, "node_modules", dependency), link);
        }
        // A project of its own, whatever lies above it.
        await writeFile(join(folder, "package.json"), `{ "private": true }`);
        await writeFile(join(folder, "program.mjs"), `${before}\n${code}\n${after}\n`);
        const { stdout } = await execute(process.execPath, ["program.mjs"], {
          ...{ cwd: folder, timeout: 60_000 },
        });
        expect(stdout).toBe(says);
      }));
  }
}
