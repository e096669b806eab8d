// `flagstone health`: whether a node should get clients, as an exit code. It needs no key, so that a
// container or a service manager can ask: 0 ready, 1 not ready, 4 nobody answers.

import { toError } from "../../base/index.ts";
import { targetUrlOf, urlOptions } from "../admin/target.ts";
import type { Command } from "../command.ts";
import { cliErrors } from "../errors.ts";
import { exitCodes } from "../exit-codes.ts";

/** Checks are few and their sentences short; whatever else answers there is cut. */
const textMax = 16 * 1024;

export const health: Command = {
  name: "health",
  summary: "whether a node is ready, as an exit code; needs no key",
  options: [
    { flags: "--live", doc: "only whether it lives, ready or not" },
    { flags: "--within <seconds>", doc: "how long to wait for an answer", fallback: "3" },
    ...urlOptions,
  ],
  examples: ["health", "health --live --url http://127.0.0.1:18083"],
  run: async (input) => {
    const { options, io } = input;
    const url = targetUrlOf(input);
    const seconds = options.whole("within", "--within", [1, 600]) ?? 3;
    const path = options.isOn("live") ? "/livez" : "/readyz?verbose";
    const { status, text } = await ask(url, path, seconds * 1000);
    io.out(text.endsWith("\n") ? text : `${text}\n`);
    return status === 200 ? exitCodes.ok : exitCodes.failed;
  },
};

async function ask(url: string, path: string, timeoutMs: number) {
  try {
    const response = await fetch(`${url.replace(/\/+$/, "")}${path}`, {
      redirect: "error",
      signal: AbortSignal.timeout(timeoutMs),
    });
    return { status: response.status, text: (await response.text()).slice(0, textMax) };
  } catch (error) {
    const { name, message, cause } = toError(error);
    const reason =
      name === "TimeoutError" ? "it does not answer" : toError(cause ?? message).message;
    throw cliErrors.connectFailed({ address: url, reason }, error);
  }
}
