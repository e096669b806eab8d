// The flags that `pub` and `sub` share, spelled as Mosquitto's clients spell them.

import { systemRandom } from "../base/index.ts";
import type { TopicFault, TopicLimits } from "../topic/index.ts";
import type { CommandInput, OptionSpec, Options } from "./command.ts";
import { cliErrors } from "./errors.ts";
import type { ClientOptions, Qos } from "./mqtt-client.ts";
import { withTimeout } from "./timeout.ts";

export const connectOptions: readonly OptionSpec[] = [
  { flags: "-h, --host <address>", doc: "broker to connect to", fallback: "127.0.0.1" },
  { flags: "-p, --port <port>", doc: "its port", fallback: "1883" },
  { flags: "-i, --id <id>", doc: "client id (default: a random one)" },
  { flags: "-u, --username <name>", doc: "user name" },
  { flags: "-P, --pw <password>", doc: "password" },
  { flags: "-V, --protocol-version <version>", doc: "5, 311 or 31", fallback: "5" },
  { flags: "-k, --keepalive <seconds>", doc: "keep alive, 0 for none", fallback: "60" },
  {
    flags: "-x, --session-expiry <seconds>",
    doc: "life of the session without its client (MQTT 5)",
  },
  { flags: "-W, --timeout <seconds>", doc: "give up after so long" },
];

const uint32Max = 0xffff_ffff;

/** @throws CLI_USAGE. */
export function clientOptionsOf(
  { options }: Pick<CommandInput, "options">,
  session: { readonly isClean: boolean },
): ClientOptions {
  const version = versionOf(options);
  const expiry = options.whole("sessionExpiry", "-x", [0, uint32Max]);
  if (expiry !== undefined && version !== 5) {
    throw cliErrors.usage({ reason: "-x needs MQTT 5 (-V 5)" });
  }
  if (version !== 5 && options.has("pw") && !options.has("username")) {
    throw cliErrors.usage({ reason: "before MQTT 5, -P needs -u" });
  }
  // In 3.1.1 a session that is not clean lives on by itself; in 5 it has to be asked for.
  const wished = expiry ?? (session.isClean ? undefined : uint32Max);
  return {
    host: options.text("host") ?? "127.0.0.1",
    port: options.whole("port", "-p", [1, 65_535]) ?? 1883,
    version,
    clientId: options.text("id") ?? `flagstone-${systemRandom.bytes(6).toString("hex")}`,
    isClean: session.isClean,
    sessionExpiryS: version === 5 ? wished : undefined,
    keepAliveS: options.whole("keepalive", "-k", [0, 65_535]) ?? 60,
    user: options.text("username"),
    password: options.text("pw"),
  };
}

const versions: Readonly<Record<string, 3 | 4 | 5>> = {
  "5": 5,
  mqttv5: 5,
  "311": 4,
  "3.1.1": 4,
  mqttv311: 4,
  "31": 3,
  "3.1": 3,
  mqttv31: 3,
};

function versionOf(options: Options): 3 | 4 | 5 {
  const text = options.text("protocolVersion") ?? "5";
  const version = Object.hasOwn(versions, text) ? versions[text] : undefined;
  if (version === undefined)
    throw cliErrors.usage({ reason: `-V expects 5, 311 or 31, got "${text}"` });
  return version;
}

export function qosOf(options: Options): Qos {
  return (options.whole("qos", "-q", [0, 2]) ?? 0) as Qos;
}

/** Runs `work` for as long as `-W` allows. @throws CLI_USAGE, before the work begins; CLI_TIMED_OUT. */
export async function withinTimeout(
  { options, io }: CommandInput,
  work: () => Promise<void>,
): Promise<void> {
  const seconds = options.whole("timeout", "-W", [1, 1_000_000]);
  await withTimeout(work(), seconds === undefined ? undefined : seconds * 1000, io.clock);
}

/** How deep a topic may be is the broker's to say. */
const anyDepth: TopicLimits = {
  levelsMax: Number.POSITIVE_INFINITY,
  controlCharacters: "allow",
};

/** @throws CLI_USAGE with what is wrong with the topic or filter. */
export function checkTopic(
  text: string,
  what: "topic" | "topic filter",
  faultOf: (text: string, limits: TopicLimits) => TopicFault | undefined,
): void {
  const fault = faultOf(text, anyDepth);
  if (fault === undefined) return;
  const words = fault.replaceAll("_", " ");
  throw cliErrors.usage({ reason: `not a ${what}: "${text}" (${words})` });
}
