// Aedes as a broker of its own, for the benches: `node aedes-broker.mjs PORT [KIND FOLDER]`. Without a
// folder its sessions live in memory; with one in LevelDB, through aedes-persistence-level, which
// writes without syncing, or in Flagstone's store.

import { createServer } from "node:net";
import { Aedes } from "aedes";

const [port, kind, folder] = process.argv.slice(2);

const kinds = {
  level: async () => {
    const { ClassicLevel } = await import("classic-level");
    const { default: create } = await import("aedes-persistence-level");
    return create(new ClassicLevel(folder));
  },
  flagstone: async () => {
    const { openPersistence } = await import("flagstone/aedes");
    return openPersistence({ dir: folder });
  },
};

const broker = await Aedes.createBroker({
  concurrency: 1000,
  maxClientsIdLength: 128,
  persistence: await kinds[kind]?.(),
});
const server = createServer({ noDelay: true }, broker.handle);
server.listen(Number(port), "127.0.0.1");
process.once("SIGTERM", () => process.exit(0));
