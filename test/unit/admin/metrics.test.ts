import { expect, test } from "vitest";
import { familiesOf, metricsText } from "../../../src/admin/metrics.ts";
import { createCounters, createHistogram, observe } from "../../../src/base/index.ts";
import { createBrokerCounters } from "../../../src/broker/index.ts";

const counters = createBrokerCounters();
const families = familiesOf([{ kind: "counters", room: "broker", counters }]);

test("every counter of the broker is shown exactly once", () => {
  const fresh = createBrokerCounters();
  const shown = familiesOf([{ kind: "counters", room: "broker", counters: fresh }]);
  const sum = (): number =>
    shown.flatMap((family) => family.samples()).reduce((total, { value }) => total + value, 0);
  for (const name of Object.keys(fresh) as Array<keyof typeof fresh>) {
    const before = sum();
    fresh[name] += 1;
    expect(sum() - before, name).toBe(1);
  }
});

test("names are of one form, end in their unit, and have a help text of their own", () => {
  for (const { name, help } of families) {
    expect(name).toMatch(/^flagstone_broker_[a-z0-9_]+_total$/);
    expect(help.length).toBeGreaterThan(10);
  }
  expect(new Set(families.map(({ name }) => name)).size).toBe(families.length);
});

test("labels are of a fixed set", () => {
  const labels = families.flatMap((family) =>
    family.samples().map((sample) => sample.labels ?? {}),
  );
  const values = labels.flatMap((each) => Object.entries(each).map((entry) => entry.join("=")));
  expect(values).toContain("reason=not_stored");
  expect(values).toContain("qos=2");
  expect(values.length).toBeLessThan(40);
});

test("the text is what Prometheus reads", async () => {
  const times = createHistogram([1, 10]);
  for (const ms of [0.5, 5, 5, 100]) observe(times, ms);
  const plain = createCounters({
    bytesSent: "bytes sent",
    syncMsSum: "time",
    syncMsMax: "longest",
  });
  plain.syncMsSum = 1500;
  plain.syncMsMax = 250;
  const text = await metricsText(
    familiesOf([
      { kind: "counters", room: "log", counters: plain },
      {
        kind: "gauge",
        name: "depth",
        help: "a depth",
        read: () => [{ labels: { a: 'x"\n' }, value: 1 }],
      },
      { kind: "histogram", name: "sync_seconds", help: "syncs", histogram: times },
    ]),
  );
  expect(text).toContain(
    "# TYPE flagstone_log_bytes_sent_total counter\nflagstone_log_bytes_sent_total 0\n",
  );
  expect(text).toContain("flagstone_log_sync_seconds_total 1.5\n");
  expect(text).toContain(
    "# TYPE flagstone_log_sync_max_seconds gauge\nflagstone_log_sync_max_seconds 0.25\n",
  );
  expect(text).toContain('flagstone_depth{a="x\\"\\n"} 1\n');
  expect(text).toContain('flagstone_sync_seconds_bucket{le="0.001"} 1\n');
  expect(text).toContain('flagstone_sync_seconds_bucket{le="0.01"} 3\n');
  expect(text).toContain('flagstone_sync_seconds_bucket{le="+Inf"} 4\n');
  expect(text).toContain("flagstone_sync_seconds_sum 0.1105\n");
  expect(text).toContain("flagstone_sync_seconds_count 4\n");
});
