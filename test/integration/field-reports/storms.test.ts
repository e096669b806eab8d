// Faults that users of MQTT brokers have met, against the launched broker (docs/reported-faults.md):
// everybody at once, and more than a reader can take.

import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { isLong } from "../../support/amount.ts";
import { authority, server } from "../../support/certificates.ts";
import { LaunchedBroker } from "../../support/launched-broker.ts";
import {
  bytes,
  connect,
  puback,
  publish,
  subscribe4,
  subscribe5,
} from "../../support/mqtt-bytes.ts";
import { pause } from "../../support/numbered-run.ts";
import type { RawClient } from "../../support/raw-client.ts";

const mib = 2 ** 20;

async function residentBytes(broker: LaunchedBroker): Promise<number> {
  const status = await readFile(`/proc/${broker.process.pid}/status`, "utf8");
  return Number(/VmRSS:\s+(\d+) kB/.exec(status)?.[1]) * 1024;
}

function p99(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.floor(sorted.length * 0.99)] as number;
}

describe("R44: everybody comes back within a second, over TLS, and sends 60 SUBSCRIBEs at once", () => {
  const count = isLong ? 5000 : 250;
  const filters = 60;
  /** The reported storm is twenty times as large. */
  const withinMs = isLong ? 180_000 : 60_000;
  let folder = "";
  let broker: LaunchedBroker;

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), "flagstone-storm-"));
    const [cert, key] = [join(folder, "cert.pem"), join(folder, "key.pem")];
    await writeFile(cert, server.cert);
    await writeFile(key, server.key, { mode: 0o600 });
    broker = await LaunchedBroker.open([
      ...["--set", "listeners.tcp.type=tls"],
      ...["--set", `listeners.tcp.tls.cert=${cert}`, "--set", `listeners.tcp.tls.key=${key}`],
    ]);
  });
  afterAll(async () => {
    await broker?.[Symbol.asyncDispose]();
    await rm(folder, { recursive: true, force: true });
  });

  /** Tries again, as devices do, until CONNACK says yes; how often that was. */
  async function join60(
    n: number,
  ): Promise<{ readonly client: RawClient; readonly tries: number }> {
    const asked = Array.from({ length: filters }, (_, f) =>
      subscribe4(f + 1, [[`r44/${n}/${f}`, 1]]),
    );
    const sent = bytes(connect({ level: 4, clientId: `r44 ${n}`, clean: n % 2 === 0 }), ...asked);
    // Twenty addresses, so that the bounds of one address hold as they are.
    const options = { ca: authority, localAddress: `127.0.1.${1 + (n % 20)}` };
    for (let tries = 1; ; tries++) {
      const client = await broker.rawTls(options, 4).catch(() => undefined);
      client?.send(sent);
      const answer = await client?.next(30_000).catch(() => undefined);
      if (client !== undefined && answer?.bytes[0] === 0x20 && answer.bytes[3] === 0) {
        return { client, tries };
      }
      await client?.close();
      await pause(200 + 10 * (n % 50));
    }
  }

  test.each(["first", "second"])(
    "whoever was accepted is not cut off, every filter is granted, all are in soon: %s storm",
    async (storm) => {
      const started = performance.now();
      const ready = await Promise.all(
        Array.from({ length: count }, async (_, n) => {
          await pause((1000 * n) / count);
          const { client, tries } = await join60(n);
          for (let f = 1; f <= filters; f++) {
            const { messageId, granted } = await client.expect("suback", withinMs);
            expect([messageId, granted]).toEqual([f, [1]]);
          }
          return { client, tries };
        }),
      );
      const seconds = (performance.now() - started) / 1000;
      const most = Math.max(...ready.map(({ tries }) => tries));
      console.log(
        `R44: ${count} clients, ${storm}: ${seconds.toFixed(1)} s, ${most} tries at most`,
      );
      expect(ready.filter(({ client }) => client.isClosed)).toEqual([]);
      expect(seconds).toBeLessThan(withinMs / 1000);
      if (storm === "second") return;
      await broker.end("kill");
      await broker.closeClients();
      await broker.start();
    },
  );
});

test("R78: a reader that takes less than comes at QoS 0 costs bounded memory and nobody's time", async () => {
  const [rounds, perRound] = [isLong ? 3000 : 300, 200];
  const payload = Buffer.alloc(1000, "x");
  await using broker = await LaunchedBroker.open(["--set", "protection.sysInterval=1s"]);
  const { client: honest } = await broker.connect("honest");
  honest.send(subscribe5(1, [["honest", 1]]));
  await honest.expect("suback");
  const roundTripMs = async (): Promise<number> => {
    const from = performance.now();
    honest.send(publish("honest", "x", { qos: 1, id: 1, properties: "" }));
    for (let got = 0; got < 2; got++) {
      const { type, bytes: data } = await honest.next();
      if (type === 3) honest.send(puback(data.readUInt16BE(10)));
    }
    return performance.now() - from;
  };
  const alone: number[] = [];
  for (let n = 0; n < 200; n++) alone.push(await roundTripMs());
  const { client: slow } = await broker.connect("slow", { level: 4 });
  slow.send(subscribe4(1, [["flood", 0]]));
  await slow.expect("suback");
  let got = 0;
  slow.handle(({ type }) => {
    if (type === 3) got++;
  });
  const { client: p } = await broker.connect("flood", { level: 4 });
  const batch = bytes(...Array.from({ length: perRound }, () => publish("flood", payload)));
  const before = await residentBytes(broker);
  const crowded: number[] = [];
  let highest = 0;
  for (let round = 0; round < rounds; round++) {
    // In between, what the system and the broker keep for it is full.
    if (round % 150 === 149) slow.resume();
    else slow.pause();
    p.send(batch);
    await pause(10);
    if (round % 5 === 0) crowded.push(await roundTripMs());
    highest = Math.max(highest, await residentBytes(broker));
  }
  slow.resume();
  for (let seen = -1; seen !== got; await pause(500)) seen = got;
  expect(slow.isClosed).toBe(false);
  // Nothing is lost without a count.
  const { client: operator } = await broker.connect("operator", { level: 4 });
  operator.send(subscribe4(1, [["$flagstone/counters/broker/deliveriesFull", 0]]));
  await operator.expect("suback");
  const dropped = Number((await operator.expect("publish")).payload);
  expect([dropped > 0, got + dropped]).toEqual([true, rounds * perRound]);
  expect(highest - before).toBeLessThan(64 * mib);
  expect(p99(crowded)).toBeLessThan(10 * p99(alone) + 100);
});
