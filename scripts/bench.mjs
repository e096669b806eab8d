// `npm run bench -- NAME`: the same set-up, then bench/NAME.mjs or bench/NAME.ts, which print one
// JSON line per scenario. TypeScript benches run through vite's module runner, as tests do.

import { existsSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { become, root, setUp } from "./set-up.mjs";

setUp();
const [name, ...rest] = process.argv.slice(2);
const folder = join(root, "bench");
const names = readdirSync(folder)
  .filter((file) => /\.(mjs|ts)$/.test(file))
  .map((file) => file.replace(/\.(mjs|ts)$/, ""));

const script = join(folder, `${name}.mjs`);
const source = join(folder, `${name}.ts`);
if (name !== undefined && existsSync(script)) {
  become([script, ...rest]);
} else if (name !== undefined && existsSync(source)) {
  become([join(root, "scripts/run-ts.mjs"), source, ...rest]);
} else {
  console.error(`give the name of a bench: ${names.join(", ") || "there is none yet"}`);
  process.exit(2);
}
