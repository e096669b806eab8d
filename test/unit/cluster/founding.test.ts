import { describe, expect, test } from "vitest";
import { SeededRandom, SimClock, SimDisk } from "../../../src/base/index.ts";
import {
  clusterIdOf,
  expectedOf,
  type Founding,
  identityOf,
} from "../../../src/cluster/founding.ts";
import { becomeMember, isMemberDir, prepareSite } from "../../../src/cluster/joining.ts";

const founding = (names: readonly string[], cluster = "plant"): Founding => ({
  cluster,
  members: names.map((name) => ({ name, address: { host: name, port: 7400 } })),
});

const random = new SeededRandom("founding");
const world = () => {
  const clock = new SimClock({ random });
  const disk = new SimDisk({ clock, random });
  return { disk: disk.attach(), run: <T>(work: Promise<T>) => clock.complete(work) };
};

describe("first members", () => {
  test("the order of the list does not count, any other name makes another cluster", () => {
    const list = founding(["n1", "n2", "n3"]);
    const turned = founding(["n3", "n1", "n2"]);
    expect(expectedOf(turned)).toEqual(expectedOf(list));
    expect(expectedOf(list).map(({ node, name }) => `${node} ${name}`)).toEqual([
      ...["1 n1", "2 n2", "3 n3"],
    ]);
    const others = [
      ...[founding(["n1", "n2"]), founding(["n1", "n2", "n4"])],
      ...[founding(["n1", "n2", "n3"], "plant2"), founding(["n1n2", "n3"])],
    ];
    const ids = [list, ...others].map(clusterIdOf);
    expect(new Set(ids).size).toBe(ids.length);
  });

  test("a list that cannot be is refused with what is wrong with it", () => {
    const fault = (names: readonly string[], cluster?: string): string => {
      try {
        expectedOf(founding(names, cluster));
        return "none";
      } catch (error) {
        return (error as Error).message;
      }
    };
    expect(fault([])).toContain("1 to 7");
    expect(fault(["a", "b", "a"])).toContain("two of its first members have one name");
    expect(fault(["a", "B"])).toContain('"B" is not 1 to 64');
    expect(fault(["a"], "")).toContain('"" is not 1 to 64');
    expect(fault(["1", "2", "3", "4", "5", "6", "7", "8"])).toContain("1 to 7");
  });

  test("a directory keeps who it is, and is nobody else's", async () => {
    const { disk, run } = world();
    const list = founding(["n1", "n2", "n3"]);
    const place = { dir: "data", name: "n2", random };
    const first = await run(identityOf(disk, place, list));
    expect(await run(identityOf(disk, place, list))).toEqual(first);
    expect(await run(isMemberDir(disk, "data"))).toBe(false);
    const asN1 = identityOf(disk, { ...place, name: "n1" }, list);
    await expect(run(asN1)).rejects.toMatchObject({ code: "RAFT_IDENTITY_FOREIGN" });
    const elsewhere = identityOf(disk, place, founding(["n1", "n2"]));
    await expect(run(elsewhere)).rejects.toMatchObject({ code: "RAFT_IDENTITY_FOREIGN" });
    const stranger = identityOf(disk, { ...place, name: "n9" }, list);
    await expect(run(stranger)).rejects.toThrow("n9 is not among its first members");
    // Emptied, it is another disk of the same site.
    const other = world();
    const wiped = await other.run(identityOf(other.disk, place, list));
    expect(wiped.siteId).toBe(first.siteId);
    expect(wiped.diskId).not.toBe(first.diskId);
  });
});

describe("a site that joins", () => {
  const clusterId = "ab".repeat(16);

  test("each step of joining may be repeated", async () => {
    const { disk, run } = world();
    const place = { dir: "data", clusterId, random };
    const identity = await run(prepareSite(disk, place));
    expect(await run(prepareSite(disk, place))).toEqual(identity);
    const { siteId, diskId } = identity;
    const address = { host: "n4", port: 1 };
    const own = { node: 4, siteId, diskId, name: "n4", address, removed: false };
    for (const _ of [1, 2]) await run(becomeMember(disk, "data", [own]));
    expect(await run(isMemberDir(disk, "data"))).toBe(true);
  });

  test("nothing is dropped to join, and no directory is of two clusters", async () => {
    const { disk, run } = world();
    await run(disk.makeDir("data/log"));
    const place = { dir: "data", clusterId, random };
    await expect(run(prepareSite(disk, place))).rejects.toMatchObject({
      code: "CLUSTER_DIR_IN_USE",
    });
    const free = { ...place, dir: "other" };
    await run(prepareSite(disk, free));
    const foreign = prepareSite(disk, { ...free, clusterId: "cd".repeat(16) });
    await expect(run(foreign)).rejects.toMatchObject({ code: "RAFT_IDENTITY_FOREIGN" });
  });
});
