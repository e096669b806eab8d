// `npm start`: installs and builds what is missing, then runs a broker on 127.0.0.1:1883 with its
// data in ./data. Arguments behind `--` go to it: `npm start -- --port 2883`.

import { join } from "node:path";
import { become, root, setUp } from "./set-up.mjs";

setUp();
const given = process.argv.slice(2);
const main = join(root, "dist/cli/main.js");
const data = given.includes("--data") ? [] : ["--data", "./data"];
become([main, "start", ...data, ...given], {
  UV_THREADPOOL_SIZE: process.env.UV_THREADPOOL_SIZE ?? "8",
});
