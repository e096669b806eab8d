// Runs one TypeScript file of bench/ or scripts/ without a build of its own, with vite's module
// runner: `node scripts/run-ts.mjs bench/codec.ts ...`.

import { resolve } from "node:path";
import { createServer, createServerModuleRunner } from "vite";
import { root } from "./set-up.mjs";

const [file, ...rest] = process.argv.slice(2);
const server = await createServer({
  root,
  configFile: false,
  logLevel: "error",
  appType: "custom",
  server: { middlewareMode: true, hmr: false, ws: false, watch: null },
  optimizeDeps: { noDiscovery: true },
});
process.argv = [process.argv[0], file, ...rest];
try {
  await createServerModuleRunner(server.environments.ssr).import(resolve(file));
} finally {
  await server.close();
}
