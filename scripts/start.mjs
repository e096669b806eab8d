// `npm start`: the set-up if it is needed, then the broker on 127.0.0.1:1883 with its data in ./data.
// Further arguments go to the broker: `npm start -- --port 1884`. Ends with the broker's exit code.

import { spawn } from "node:child_process";
import { join } from "node:path";
import { root, setUp } from "./setup.mjs";

setUp();
const main = join(root, "dist/cli/main.js");
const given = process.argv.slice(2);
const data = given.includes("--data") ? [] : ["--data", join(root, "data")];
const broker = spawn(process.execPath, [main, "start", ...data, ...given], { stdio: "inherit" });

// A terminal sends Ctrl-C to both; a supervisor signals only this process.
process.on("SIGINT", () => undefined);
for (const signal of ["SIGTERM", "SIGHUP"]) process.on(signal, () => broker.kill(signal));
broker.once("exit", (code, signal) => {
  process.exitCode = code ?? (signal === "SIGKILL" ? 137 : 1);
});
