// `flagstone pub`: publishes a message from a flag, a file or standard input, or one a line. Ends
// well only when the broker has acknowledged everything of QoS 1 and 2.

import { readFile } from "node:fs/promises";
import { toError } from "../../base/index.ts";
import { topicNameFault } from "../../topic/index.ts";
import {
  checkTopic,
  clientOptionsOf,
  connectOptions,
  qosOf,
  withinTimeout,
} from "../client-options.ts";
import type { Command, CommandInput, Io, Options } from "../command.ts";
import { cliErrors } from "../errors.ts";
import { exitCodes } from "../exit-codes.ts";
import { linesOf } from "../lines.ts";
import type { ConnectClient, MqttClient, OutgoingMessage } from "../mqtt-client.ts";
import { connectSocket } from "../mqtt-connection.ts";

export const pub: Command = createPub(connectSocket);

export function createPub(connect: ConnectClient): Command {
  return {
    name: "pub",
    summary: "publish messages",
    options: [
      { flags: "-t, --topic <topic>", doc: "topic to publish to" },
      { flags: "-m, --message <text>", doc: "the message" },
      { flags: "-f, --file <path>", doc: "the message is the content of a file" },
      { flags: "-s, --stdin-file", doc: "the message is all of standard input" },
      { flags: "-l, --stdin-line", doc: "a message for each line of standard input" },
      { flags: "-n, --null-message", doc: "an empty message (with -r: clears the retained one)" },
      { flags: "-q, --qos <0|1|2>", doc: "quality of service", fallback: "0" },
      { flags: "-r, --retain", doc: "retain the message" },
      ...connectOptions,
    ],
    examples: ["pub -t demo/hello -m world -q 1", "pub -t sensors/a -l -q 1 < readings.txt"],
    run: (input) => runPub(input, connect),
  };
}

async function runPub(input: CommandInput, connect: ConnectClient): Promise<number> {
  const { options, io } = input;
  const source = sourceOf(options);
  const topic = topicOf(options);
  const base = { topic, qos: qosOf(options), isRetained: options.isOn("retain") };
  const clientOptions = clientOptionsOf(input, { isClean: true });
  const payload = source === "lines" ? undefined : await readPayload(source, options, io);
  await withinTimeout(input, async () => {
    const client = await connect(clientOptions, () => true);
    const work =
      payload === undefined ? publishLines(client, base, io) : client.publish({ ...base, payload });
    await Promise.race([work, client.closed]);
    await client.end();
  });
  return exitCodes.ok;
}

type Source = "message" | "file" | "stdin" | "lines" | "null";

function sourceOf(options: Options): Source {
  const given: Source[] = [];
  if (options.has("message")) given.push("message");
  if (options.has("file")) given.push("file");
  if (options.isOn("stdinFile")) given.push("stdin");
  if (options.isOn("stdinLine")) given.push("lines");
  if (options.isOn("nullMessage")) given.push("null");
  const [source] = given;
  if (source === undefined || given.length > 1) {
    throw cliErrors.usage({ reason: "give the message with exactly one of -m, -f, -s, -l, -n" });
  }
  return source;
}

function topicOf(options: Options): string {
  const topic = options.text("topic");
  if (topic === undefined || topic === "")
    throw cliErrors.usage({ reason: "give a topic with -t" });
  if (/[+#]/.test(topic)) {
    throw cliErrors.usage({ reason: `a topic to publish to has no wildcards: "${topic}"` });
  }
  checkTopic(topic, "topic", topicNameFault);
  return topic;
}

/** Largest message of standard input: MQTT's own limit for a packet. */
const payloadBytesMax = 268_435_455;

async function readPayload(
  source: Exclude<Source, "lines">,
  options: Options,
  io: Io,
): Promise<Uint8Array> {
  if (source === "null") return Buffer.alloc(0);
  if (source === "message") return Buffer.from(options.text("message") ?? "");
  if (source === "file") return readPayloadFile(options.text("file") ?? "");
  const chunks: Buffer[] = [];
  let sizeBytes = 0;
  for await (const chunk of io.stdin) {
    const bytes = Buffer.from(chunk);
    sizeBytes += bytes.length;
    if (sizeBytes > payloadBytesMax) {
      throw tooLarge("standard input");
    }
    chunks.push(bytes);
  }
  return Buffer.concat(chunks);
}

function tooLarge(what: string): Error {
  return cliErrors.usage({ reason: `${what} is larger than any MQTT packet (256 MiB)` });
}

async function readPayloadFile(path: string): Promise<Uint8Array> {
  try {
    return await readFile(path);
  } catch (error) {
    throw cliErrors.unreadableFile({ path, reason: toError(error).message }, error);
  }
}

/** Messages on their way at once; the rest of standard input waits. */
const windowMax = 64;

/** @throws as the first message that is refused, whether or not another line has come by then. */
async function publishLines(
  client: MqttClient,
  base: Omit<OutgoingMessage, "payload">,
  io: Io,
): Promise<void> {
  const underWay = new Set<Promise<void>>();
  let isRefused = false;
  let refuse: (error: unknown) => void = () => undefined;
  const refused = new Promise<never>((_resolve, reject) => {
    refuse = reject;
  });
  const send = (payload: Buffer): void => {
    const failed = (error: unknown): void => {
      isRefused = true;
      refuse(error);
    };
    const done = client.publish({ ...base, payload }).catch(failed);
    const settled = done.then(() => {
      underWay.delete(settled);
    });
    underWay.add(settled);
  };
  const sendAll = async (): Promise<void> => {
    const tooLong = () => tooLarge("a line of standard input");
    for await (const payload of linesOf(io.stdin, payloadBytesMax, tooLong)) {
      if (isRefused) return;
      send(payload);
      if (underWay.size >= windowMax) await Promise.race(underWay);
    }
    await Promise.all(underWay);
  };
  await Promise.race([refused, sendAll().then(() => (isRefused ? refused : undefined))]);
}
