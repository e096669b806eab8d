// Starts and stops a broker in memory and says which modules that loaded, as `URL BYTES` lines.

import { Session } from "node:inspector";

const session = new Session();
session.connect();
const modules = new Map();
session.on("Debugger.scriptParsed", ({ params: { url, length = 0 } }) => {
  // Packages in CommonJS have paths.
  if (url.startsWith("file:") || url.startsWith("/")) modules.set(url, length);
});
session.post("Debugger.enable");
modules.clear(); // this program

const { createBroker } = await import("flagstone");
const broker = await createBroker({ memory: true });
await broker.close();
session.disconnect();
for (const [url, sizeBytes] of modules) console.log(`${url} ${sizeBytes}`);
