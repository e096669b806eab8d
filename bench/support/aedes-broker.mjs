// Aedes as a broker of its own, for the benches: `node aedes-broker.mjs PORT [FOLDER]`. Without a
// folder its sessions live in memory; with one in LevelDB, through aedes-persistence-level, which
// writes without syncing.

import { createServer } from "node:net";
import { Aedes } from "aedes";

const [port, folder] = process.argv.slice(2);

async function persistence() {
  if (folder === undefined) return undefined;
  const { ClassicLevel } = await import("classic-level");
  const { default: create } = await import("aedes-persistence-level");
  return create(new ClassicLevel(folder));
}

const broker = await Aedes.createBroker({
  concurrency: 1000,
  maxClientsIdLength: 128,
  persistence: await persistence(),
});
const server = createServer({ noDelay: true }, broker.handle);
server.listen(Number(port), "127.0.0.1");
process.once("SIGTERM", () => process.exit(0));
