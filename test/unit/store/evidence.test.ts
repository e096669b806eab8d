import { expect, test } from "vitest";
import { EvidenceTable } from "../../../src/store/evidence.ts";
import type { ShardStore } from "../../../src/store/shard-store.ts";

/** Rows whose scans see what stood there at their begin, and end when the test says so. */
function createRows() {
  const rows = new Map<string, Buffer>();
  const scans: Array<() => void> = [];
  const store = {
    async scan(prefix: Buffer, visit: (key: Buffer, value: Buffer) => void): Promise<void> {
      const seen = [...rows];
      await new Promise<void>((resolve) => scans.push(resolve));
      for (const [name, value] of seen) {
        const key = Buffer.from(name, "latin1");
        if (key.subarray(0, prefix.length).equals(prefix)) visit(key, value);
      }
    },
  } as unknown as ShardStore;
  const batch = {
    put: (key: Buffer, value: Buffer) => rows.set(key.toString("latin1"), value),
    delete: (key: Buffer) => rows.delete(key.toString("latin1")),
  };
  return { store, scans, batch: batch as never };
}

const claim = { incarnation: 7, ownerEpoch: 9 };
const item = (packetId: number) => ({ publisher: "p", ...claim, packetId });
const turn = () => new Promise<void>((resolve) => setImmediate(resolve));

test("evidence that a checkpoint moves into rows while they are read is not missed", async () => {
  const { store, scans, batch } = createRows();
  const table = new EvidenceTable(store);
  for (const id of [1, 2, 3]) table.applyTaken(item(id));
  const opening = table.open("p", claim);
  // The scan has begun: it does not see what the checkpoint writes.
  table.capture()(batch);
  table.applyReleased(item(2));
  table.finish(true);
  scans.shift()?.();
  await turn();
  // It is read again; a second checkpoint in between costs a third time.
  table.capture()(batch);
  table.applyTaken(item(4));
  table.finish(true);
  scans.shift()?.();
  await turn();
  scans.shift()?.();
  await opening;
  expect(table.list("p", claim)).toEqual([1, 3, 4]);
  expect(table.decide(item(1), () => undefined)).toBe("repeat_applied");
  expect(table.decide(item(2), () => undefined)).toBe("new");
});

test("evidence of a checkpoint that fails while rows are read is not missed", async () => {
  const { store, scans, batch } = createRows();
  const table = new EvidenceTable(store);
  table.applyTaken(item(1));
  const opening = table.open("p", claim);
  table.capture();
  table.applyTaken(item(2));
  table.finish(false);
  scans.shift()?.();
  await opening;
  expect(table.list("p", claim)).toEqual([1, 2]);
  table.capture()(batch);
  table.finish(true);
});
