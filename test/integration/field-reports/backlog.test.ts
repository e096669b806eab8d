// Faults that users of MQTT brokers have met, against the launched broker (docs/reported-faults.md):
// offline queues that grow past their limit.

import { expect, test } from "vitest";
import { LaunchedBroker } from "../../support/launched-broker.ts";
import { puback, publish, subscribe4, subscribe5 } from "../../support/mqtt-bytes.ts";
import { pause } from "../../support/numbered-run.ts";

test.each([4, 5] as const)(
  "R79: level %i: of 128 messages the newest 4 come, the others are counted",
  async (level) => {
    await using broker = await LaunchedBroker.open(["--set", "sessions.backlogMax=4"]);
    for (const end of ["stop", "kill"] as const) {
      const { client } = await broker.resume("s", { level });
      const filters = [["t/#", 1]] as const;
      client.send(level === 5 ? subscribe5(1, filters) : subscribe4(1, filters));
      await client.expect("suback");
      client.drop();
      const { client: p } = await broker.connect("p", { level: 4 });
      for (let n = 1; n <= 128; n++) {
        p.send(publish(`t/${n % 7}`, `${n}`, { qos: 1, id: n }));
        await p.expectBytes(puback(n));
      }
      await broker.restart(end);
      const { client: again } = await broker.resume("s", { level });
      const got: number[] = [];
      again.handle(({ packet }) => {
        if (packet?.cmd !== "publish") return;
        got.push(Number(packet.payload));
        again.send(puback(packet.messageId!));
      });
      await pause(400);
      expect(got).toEqual([125, 126, 127, 128]);
      // A count begins with its process.
      const { client: operator } = await broker.connect("operator", { level: 4 });
      operator.send(subscribe4(1, [["$flagstone/counters/session/backlogDropped", 0]]));
      await operator.expect("suback");
      expect(Number((await operator.expect("publish")).payload)).toBe(124);
      await broker.closeClients();
    }
  },
);
