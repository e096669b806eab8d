// How a program of the crash tests is asked: lines of JSON over a Unix socket, each answered by its id.

import { rmSync } from "node:fs";
import { createServer } from "node:net";
import { createInterface } from "node:readline";

/** Prints `ready` when it listens at `path`. `nameOf(error)` is what the other side is told of a failure. */
export function serve(path, answer, nameOf) {
  // Left by the life before.
  rmSync(path, { force: true });
  createServer((socket) => {
    socket.on("error", () => socket.destroy());
    const lines = createInterface({ input: socket });
    lines.on("error", () => socket.destroy());
    lines.on("line", (line) => {
      const { id, ...request } = JSON.parse(line);
      answer(request).then(
        (value) => socket.write(`${JSON.stringify({ id, value })}\n`),
        (error) => socket.write(`${JSON.stringify({ id, error: nameOf(error) })}\n`),
      );
    });
  }).listen(path, () => console.log("ready"));
}
