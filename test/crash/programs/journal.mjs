// A program whose durable set is known: it appends numbered lines to a journal, syncs after each
// and only then makes a mark. Every 40 lines it starts a new journal: written aside, synced, renamed
// into place, the folder synced.
// Usage: journal.mjs FOLDER MARKS LINES

import fs from "node:fs";
import { join } from "node:path";

const [folder, marksPath, lines] = process.argv.slice(2);
const marks = fs.openSync(marksPath, "a");

const syncFolder = () => {
  const fd = fs.openSync(folder, "r");
  fs.fsyncSync(fd);
  fs.closeSync(fd);
};

const startJournal = (number) => {
  const aside = join(folder, "next");
  const fd = fs.openSync(aside, "w");
  fs.writeSync(fd, `journal ${number}\n`);
  fs.fdatasyncSync(fd);
  fs.renameSync(aside, join(folder, `journal-${number}`));
  syncFolder();
  return fd;
};

let fd = startJournal(0);
for (let line = 1; line <= Number(lines); line++) {
  if (line % 40 === 0) {
    fs.closeSync(fd);
    fd = startJournal(line / 40);
  }
  fs.writeSync(fd, `${line} ${"x".repeat(line % 700)}\n`);
  fs.fdatasyncSync(fd);
  fs.writeSync(marks, String(line));
}
console.log("done");
