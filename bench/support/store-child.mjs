// One scenario of bench/store.mjs in a process of its own: `store-child.mjs NAME JSON` prints its line.

import { scenarios } from "./store-scenarios.mjs";

const [name, text] = process.argv.slice(2);
const options = JSON.parse(text);
const line = await scenarios[name](options);
process.stdout.write(`${JSON.stringify(line)}\n`, () => {
  if (options.dies) process.kill(process.pid, "SIGKILL");
  else process.exit(0);
});
