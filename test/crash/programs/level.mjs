// A program whose durable set is known: it puts numbered keys into a LevelDB, every tenth with sync
// through one log, and marks what a sync made durable. Small tables make it rename and remove files.
// Usage: level.mjs FOLDER MARKS KEYS

import fs from "node:fs";
import { ClassicLevel } from "classic-level";

const [folder, marksPath, keys] = process.argv.slice(2);
const marks = fs.openSync(marksPath, "a");
const db = new ClassicLevel(folder, { writeBufferSize: 64 * 1024, compression: false });
await db.open();
// A new store's first manifest is never synced, and the CURRENT that leads past it is renamed without
// a sync of the folder: until somebody syncs the folder the store may not open again.
const opened = fs.openSync(folder, "r");
fs.fsyncSync(opened);
fs.closeSync(opened);
fs.writeSync(marks, "open");
for (let key = 1; key <= Number(keys); key++) {
  const sync = key % 10 === 0;
  await db.put(String(key), "v".repeat(400), { sync });
  // A synced put says nothing about earlier ones that another log of the store holds.
  if (sync) fs.writeSync(marks, String(key));
}
await db.close();
console.log("done");
