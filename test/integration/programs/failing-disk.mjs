// A broker whose log is taken away while it runs, as a disk that fails: its files are closed beneath
// it. What the program hears, a line each.

import { closeSync, readdirSync, readlinkSync } from "node:fs";
import { createBroker, isCodedError } from "flagstone";

const said = (what, error) =>
  console.log(`${what}: ${isCodedError(error) ? `${error.code} ${error.kind}` : error}`);

const broker = await createBroker({ dir: "data" });
const messages = await broker.subscribe("a", { name: "reader" });
await broker.publish("a", "kept");
let isOver = false;
const failed = broker.failed.catch((error) => {
  isOver = true;
  said("failed", error);
});

for (const fd of readdirSync("/proc/self/fd")) {
  let path = "";
  try {
    path = readlinkSync(`/proc/self/fd/${fd}`);
  } catch {
    continue; // the one that this loop reads with
  }
  if (/\/data\/log\//.test(path)) closeSync(Number(fd));
}

await broker.publish("a", "lost").catch((error) => said("publish", error));
await failed;
await broker.publish("a", "later").catch((error) => said("later publish", error));
await broker.close().catch(() => undefined); // what did not close well
await broker.publish("a", "x").catch((error) => said("publish after close", error));
await messages.next().then(
  ({ done }) => console.log(done ? "the loop is over" : "a message"),
  (error) => said("loop", error),
);
console.log(`over: ${isOver}`);
