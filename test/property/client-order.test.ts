import fc from "fast-check";
import { expect, test } from "vitest";
import { ClientOrder } from "../../src/session/inspect/client-order.ts";

type One = { readonly clientId: string };

const ids = (list: readonly One[]): string[] => list.map(({ clientId }) => clientId);

test("sessions that come and go between looks are in order, each once", () => {
  const name = fc.constantFrom("", "a", "a1", "a10", "a2", "b", "B", "é", "z");
  const step = fc.record({ clientId: name, look: fc.boolean() });
  fc.assert(
    fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
      const order = new ClientOrder<One>();
      const there = new Map<string, One>();
      for (const { clientId, look } of steps) {
        const known = there.get(clientId);
        if (known !== undefined) {
          there.delete(clientId);
          order.left(known);
        } else {
          const one = { clientId };
          there.set(clientId, one);
          order.came(one);
        }
        if (!look) continue;
        expect(ids(order.list(there.values()))).toEqual([...there.keys()].sort());
      }
      expect(order.list(there.values()).every((one) => there.get(one.clientId) === one)).toBe(true);
      expect(ids(order.list(there.values()))).toEqual([...there.keys()].sort());
    }),
    { numRuns: 2000 },
  );
});

test("one session more of very many is compared with a few of them", () => {
  let compared = 0;
  const counted = (clientId: string): One => ({
    get clientId() {
      compared++;
      return clientId;
    },
  });
  const order = new ClientOrder<One>();
  const all = Array.from({ length: 4096 }, (_, n) => counted(`c${n}`));
  order.list(all);
  compared = 0;
  const late = counted("c17/");
  order.came(late);
  order.left(all[9] as One);
  const list = order.list([]);
  expect(compared).toBeLessThan(100);
  expect(list.length).toBe(4096);
  expect(list.indexOf(late)).toBe(list.indexOf(all[17] as One) + 1);
});

test("a list that is being read stays as it was", () => {
  const order = new ClientOrder<One>();
  const [a, b] = [{ clientId: "a" }, { clientId: "b" }];
  const before = order.list([a, b]);
  order.left(a);
  order.came({ clientId: "c" });
  expect(ids(order.list([]))).toEqual(["b", "c"]);
  expect(ids(before)).toEqual(["a", "b"]);
});

test("more changes than are worth remembering are read anew from those that are there", () => {
  const order = new ClientOrder<One>();
  order.list([]);
  const all = Array.from({ length: 10_001 }, (_, n) => ({ clientId: String(n) }));
  for (const one of all) order.came(one);
  expect(ids(order.list(all.slice(0, 20)))).toEqual(ids(all.slice(0, 20)).sort());
});
