// `flagstone version`.

import { readFileSync } from "node:fs";
import type { Command } from "../command.ts";
import { exitCodes } from "../exit-codes.ts";

export const versionCommand: Command = {
  name: "version",
  summary: "print the version",
  options: [],
  examples: ["version", "version | cut -d' ' -f2"],
  run: async ({ io }) => {
    // Not through the node's face: that would load the whole broker to print one line.
    const text = readFileSync(new URL("../../../package.json", import.meta.url), "utf8");
    const { version } = JSON.parse(text) as { version: string };
    io.out(`flagstone ${version} (node ${process.versions.node}, ${process.platform})\n`);
    return exitCodes.ok;
  },
};
