// Fuzzing of codec and connection, from one seed a case. Bounded here; for more:
//   FLAGSTONE_FUZZ_CASES=10000000 npx vitest run --project property mqtt-fuzz
// FLAGSTONE_FUZZ_KEEP=1 adds a stream of each new kind of outcome to test/corpus/mqtt.txt.
// A failure prints its seed: FLAGSTONE_FUZZ_SEED=17 repeats that case alone.

import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { expect, test } from "vitest";
import { SeededRandom } from "../../src/base/index.ts";
import { amount } from "../support/amount.ts";
import { checkStream, contextOf } from "../support/fuzz-codec.ts";
import { type ConversationCounts, runConversation } from "../support/fuzz-conversation.ts";
import { Corpus, parseCorpus } from "../support/fuzz-corpus.ts";
import { PacketFuzz } from "../support/fuzz-packets.ts";

const cases = Number(process.env.FLAGSTONE_FUZZ_CASES ?? amount(3_000, 20_000, 1_000_000));
const only = process.env.FLAGSTONE_FUZZ_SEED;
const firstSeed = Number(only ?? process.env.FLAGSTONE_FUZZ_FROM ?? 1);
/** A case of the connection takes as long as four of the codec. */
const conversationCases = Math.ceil(cases / 5);
const timeoutMs = 120_000 + cases;

const corpusFile = new URL("../corpus/mqtt.txt", import.meta.url);

function readCorpus(): string {
  return existsSync(corpusFile) ? readFileSync(corpusFile, "utf8") : "";
}

/** Runs a case for each seed; a failure says how to repeat it. */
function eachSeed(count: number, run: (seed: number) => void): void {
  const lastSeed = only === undefined ? firstSeed + count - 1 : firstSeed;
  // Refusals by the million: their stacks, which nobody reads, would take a third of the time.
  const { stackTraceLimit } = Error;
  if (only === undefined) Error.stackTraceLimit = 0;
  for (let seed = firstSeed; seed <= lastSeed; seed++) {
    try {
      run(seed);
    } catch (error) {
      const repeat = `FLAGSTONE_FUZZ_SEED=${seed} npx vitest run --project property mqtt-fuzz`;
      throw new Error(`seed ${seed}: ${String(error)}\nrepeat with: ${repeat}`, { cause: error });
    }
  }
  Error.stackTraceLimit = stackTraceLimit;
}

function drawStream(seed: number) {
  const fuzz = new PacketFuzz(new SeededRandom(seed));
  const { random } = fuzz;
  fuzz.faultChance = random.pick([0, 0.02, 0.1]);
  const version = random.chance(0.7) ? 5 : 4;
  const sender = random.chance(0.85) ? "client" : "server";
  const packets = Array.from({ length: 1 + random.below(3) }, () =>
    fuzz.packet(fuzz.anyKind(), random.chance(0.97) ? version : 5),
  );
  const whole = Buffer.concat(packets);
  const stream = random.chance(0.4) ? fuzz.damage(whole) : whole;
  return { stream, version, sender, cutAt: random.below(stream.length + 1) } as const;
}

test(
  "the codec reads any bytes as packets or refuses them, the same way however they lie",
  () => {
    const met = new Corpus(readCorpus());
    eachSeed(cases, (seed) => {
      const { stream, version, sender, cutAt } = drawStream(seed);
      met.add(stream, version, sender, checkStream(stream, contextOf(version, sender), cutAt));
    });
    console.log(`${cases} streams, ${met.size} kinds of outcome, ${met.added} of them new`);
    if (process.env.FLAGSTONE_FUZZ_KEEP === "1") writeFileSync(corpusFile, met.text());
    if (only === undefined) expect(met.size).toBeGreaterThan(100);
  },
  timeoutMs,
);

test(
  "a connection keeps its rules whatever its client says, in every state",
  () => {
    const counts: ConversationCounts = {};
    eachSeed(conversationCases, (seed) => runConversation(seed, counts));
    console.log(JSON.stringify(counts));
    if (only !== undefined) return;
    for (const what of [
      ...[
        "connect",
        "publish",
        "puback",
        "pubrec",
        "pubrel",
        "pubcomp",
        "subscribe",
        "unsubscribe",
      ],
      ...["auth", "decided", "sent auth", "sent connack", "sent publish", "sent suback"],
      ...["sent unsuback", "sent puback", "sent pubrec", "sent pubcomp", "sent pingresp"],
      ...["sent disconnect", "end client_disconnect", "end server_disconnect", "end refused"],
      ...["end protocol_error", "end keep_alive", "end connect_timeout", "end transport"],
    ]) {
      expect(counts[what] ?? 0, what).toBeGreaterThan(0);
    }
  },
  timeoutMs,
);

test("what the corpus holds comes to what it came to", () => {
  const kept = parseCorpus(readCorpus());
  expect(kept.length).toBeGreaterThan(100);
  for (const { version, sender, hex, outcome } of kept) {
    const context = contextOf(version, sender);
    const stream = Buffer.from(hex, "hex");
    for (let cutAt = 0; cutAt <= stream.length; cutAt += amount(7, 1)) {
      expect(checkStream(stream, context, cutAt), hex).toBe(outcome);
    }
  }
});
