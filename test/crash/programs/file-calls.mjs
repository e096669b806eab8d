// Changes files in every way that Node offers, so that a recorder that misses one is found out.
// Usage: file-calls.mjs FOLDER

import fs from "node:fs";
import { join } from "node:path";

const folder = process.argv[2];
const at = (name) => join(folder, name);

const fd = fs.openSync(at("a"), "w");
fs.writeSync(fd, "hello");
fs.writeSync(fd, "X", 1000);
fs.writevSync(fd, [Buffer.from("aa"), Buffer.from("bb")], 200);
fs.writevSync(fd, [Buffer.from("cc"), Buffer.from("dd")]);
fs.ftruncateSync(fd, 900);
fs.fdatasyncSync(fd);
fs.closeSync(fd);
fs.appendFileSync(at("a"), "appended");
fs.writeFileSync(at("b"), "first, longer");
fs.writeFileSync(at("b"), "second");
await fs.promises.writeFile(at("c"), "c".repeat(100_000));
await fs.promises.truncate(at("c"), 70_000);
await fs.promises.rename(at("b"), at("a"));
await fs.promises.mkdir(at("x/y"), { recursive: true });
fs.writeFileSync(at("x/y/z"), "deep");
fs.renameSync(at("x/y"), at("moved"));
fs.linkSync(at("c"), at("c2"));
fs.appendFileSync(at("c2"), "through the other name");
await fs.promises.mkdir(at("gone/deep"), { recursive: true });
fs.writeFileSync(at("gone/deep/file"), "gone");
await fs.promises.rm(at("gone"), { recursive: true });
const stream = fs.createWriteStream(at("stream"));
stream.write("one ");
await new Promise((done) => stream.end("two", done));
process.chdir(folder);
fs.writeFileSync("relative", "by a relative path");
fs.unlinkSync("moved/z");
console.log("done");
