// Faults that users of MQTT brokers have met, against the launched broker (docs/reported-faults.md):
// offline queues that grow past their limit.

import { expect, test } from "vitest";
import { LaunchedBroker } from "../../support/launched-broker.ts";
import { puback, publish, subscribe4, subscribe5 } from "../../support/mqtt-bytes.ts";

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
      for (const wanted of ["125", "126", "127", "128"]) {
        const { payload, messageId } = await again.expect("publish");
        expect(payload.toString()).toBe(wanted);
        again.send(puback(messageId as number));
      }
      await again.expectNothing();
      const said = broker.process.output();
      const line = said.split("\n").find((each) => each.includes("session.backlog_dropped"));
      expect(JSON.parse(line ?? "{}")).toMatchObject({ clientId: "s", count: 124 });
      await broker.closeClients();
    }
  },
);
