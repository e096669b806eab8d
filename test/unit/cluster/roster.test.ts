import { describe, expect, test } from "vitest";
import {
  applyCommand,
  emptyRoster,
  type NewSite,
  type Roster,
  type RosterAnswer,
  type RosterCommand,
  type Site,
} from "../../../src/cluster/core/roster.ts";
import {
  decodeCommand,
  decodeRoster,
  decodeRosterNote,
  encodeCommand,
  encodeRoster,
  encodeRosterNote,
} from "../../../src/cluster/core/roster-codec.ts";

const siteOf = (number: number, over: Partial<NewSite> = {}): NewSite => ({
  siteId: String(number).padStart(32, "0"),
  diskId: String(number).padStart(32, "d"),
  name: `n${number}`,
  address: { host: `host${number}`, port: 7400 },
  zone: "",
  ...over,
});

const founding: RosterCommand = {
  kind: "found",
  cluster: "plant",
  replicas: 3,
  sites: [1, 2, 3].map((node) => ({ node, ...siteOf(node) })),
};

/** Applies all; the last answer counts. */
function run(commands: readonly RosterCommand[], from: Roster = emptyRoster) {
  let roster = from;
  let answer: RosterAnswer = { ok: true };
  for (const command of commands) ({ roster, answer } = applyCommand(roster, command));
  return { roster, answer, told: answer.ok ? "ok" : answer.reason };
}

const founded = run([founding]).roster;
const joined = run([{ kind: "join", site: siteOf(4) }], founded).roster;
const four = run([{ kind: "activate", node: 4 }], joined).roster;

describe("the roster", () => {
  test("a cluster is founded once, and again only under the same name", () => {
    expect(run([{ kind: "join", site: siteOf(4) }]).told).toContain("not founded yet");
    expect(run([founding], four)).toMatchObject({ roster: four, answer: { ok: true } });
    const other = run([{ ...founding, cluster: "other" }], founded);
    expect(other.told).toBe("this is the cluster plant, not other");
    expect(run([{ ...founding, replicas: 5 }]).told).toContain("join more first");
    expect(run([{ ...founding, replicas: 2 }]).told).toContain("an even one more saves nothing");
  });

  test("a site that asks again to join is answered as before", () => {
    const first = run([{ kind: "join", site: siteOf(4) }], founded);
    expect(first.answer).toEqual({ ok: true, node: 4 });
    const again = run([{ kind: "join", site: siteOf(4) }], four);
    expect(again).toMatchObject({ answer: { ok: true, node: 4 }, roster: four });
  });

  test("a wiped disk, a taken name and a site that left are refused with the way out", () => {
    const wiped = { kind: "join", site: siteOf(2, { diskId: "e".repeat(32) }) } as const;
    expect(run([wiped], founded).told).toBe(
      "n2 is known as node 2 with another disk, which was replaced or wiped: " +
        "forget node 2, and join with an empty directory",
    );
    const named = { kind: "join", site: siteOf(9, { name: "n2" }) } as const;
    expect(run([named], founded).told).toContain("choose another one");
    const gone = run([{ kind: "forget", node: 4 }], four).roster;
    expect(run([{ kind: "join", site: siteOf(4) }], gone).told).toBe(
      "n4 left as node 4: join with an empty directory",
    );
    expect(run([{ kind: "activate", node: 4 }], gone).told).toContain("never comes back");
    // The name of one that left is free, its number is not.
    const heir = run([{ kind: "join", site: siteOf(5, { name: "n4" }) }], gone);
    expect(heir.answer).toEqual({ ok: true, node: 5 });
  });

  test("a cluster has as many sites as a group has members, those that left apart", () => {
    const join = (number: number): RosterCommand => ({ kind: "join", site: siteOf(number) });
    const full = run([join(4), join(5), join(6), join(7)], founded);
    expect(full.answer).toEqual({ ok: true, node: 7 });
    expect(run([join(8)], full.roster).told).toContain("7 sites at most: let another one go first");
    expect(run([{ kind: "forget", node: 7 }, join(8)], full.roster).answer).toEqual({
      ...{ ok: true, node: 8 },
    });
  });

  test("no site goes while the others are too few for the replicas", () => {
    for (const kind of ["evacuate", "forget"] as const) {
      expect(run([{ kind, node: 3 }], founded).told).toBe(
        "without node 3 2 sites are left for 3 replicas: " +
          "join another site first, or ask for fewer replicas",
      );
      expect(run([{ kind, node: 3 }], joined).told).toContain("2 sites are left");
      expect(run([{ kind, node: 3 }], four).told).toBe("ok");
    }
    const shrunk = run([{ kind: "replicas", count: 1 }], founded).roster;
    expect(run([{ kind: "evacuate", node: 3 }], shrunk).told).toBe("ok");
  });

  test("a site leaves when nothing is placed on it, and stays if it is told so before", () => {
    const placed = run([{ kind: "place", shard: 7, nodes: [4, 1, 2] }], four).roster;
    expect(placed.placements.get(7)).toEqual([1, 2, 4]);
    expect(run([{ kind: "leave", node: 4 }], placed).told).toContain("it is active");
    const going = run([{ kind: "evacuate", node: 4 }], placed).roster;
    expect(run([{ kind: "leave", node: 4 }], going).told).toContain("1 shards are still placed");
    expect(run([{ kind: "stay", node: 4 }], going).roster).toEqual(placed);
    expect(run([{ kind: "activate", node: 4 }], going).told).toContain("is being evacuated");
    const empty = run([{ kind: "place", shard: 7, nodes: [1, 2, 3] }], going).roster;
    const left = run([{ kind: "leave", node: 4 }], empty);
    expect(left.roster.sites.get(4)?.state).toBe("left");
    expect(run([{ kind: "leave", node: 4 }], left.roster).told).toBe("ok");
  });

  test("a shard is placed on sites that are there", () => {
    const place = (nodes: number[]): string =>
      run([{ kind: "place", shard: 7, nodes }], founded).told;
    expect(place([])).toContain("1 to 7 replicas, not 0");
    expect(place([1, 9])).toBe("there is no node 9 in this cluster");
    expect(place([1, 1])).toBe("ok");
    expect(run([{ kind: "unplace", shard: 7 }], founded).roster).toEqual(founded);
  });

  test("a site has a new address and zone, and is the same site", () => {
    const address = { path: "/run/n2" };
    const { roster } = run([{ kind: "moved", node: 2, address, zone: "b" }], founded);
    expect(roster.sites.get(2)).toEqual({
      ...siteOf(2, { address, zone: "b" }),
      ...{ node: 2, state: "active", addressNumber: 1 },
    });
  });
});

const commands: readonly RosterCommand[] = [
  founding,
  { kind: "join", site: siteOf(4, { zone: "east", address: { path: "/run/n4" } }) },
  { kind: "moved", node: 2, address: { host: "::1", port: 1 }, zone: "west" },
  { kind: "activate", node: 4 },
  { kind: "evacuate", node: 4 },
  { kind: "stay", node: 4 },
  { kind: "replicas", count: 3 },
  { kind: "place", shard: 300, nodes: [1, 2, 3] },
  { kind: "place", shard: 2, nodes: [4] },
  { kind: "unplace", shard: 2 },
  { kind: "forget", node: 1 },
  { kind: "leave", node: 4 },
];

describe("the bytes of the roster", () => {
  test("every command reads as it was written, and no part of one reads", () => {
    for (const command of commands) {
      const bytes = encodeCommand(command);
      expect(decodeCommand(bytes)).toEqual(command);
      for (let end = 0; end < bytes.length; end++) {
        expect(decodeCommand(bytes.subarray(0, end))).toBeUndefined();
      }
    }
    expect(decodeCommand(Buffer.from([2, 0]))).toBeUndefined();
    expect(decodeCommand(Buffer.from([1, 99, 0]))).toBeUndefined();
  });

  test("the state has one encoding, whatever the order in which it came about", () => {
    const { roster } = run(commands);
    const bytes = encodeRoster(roster);
    expect(decodeRoster(bytes)).toEqual(roster);
    const turned: Roster = {
      ...roster,
      sites: new Map([...roster.sites].reverse()),
      placements: new Map([...roster.placements].reverse()),
    };
    expect(encodeRoster(turned).equals(bytes)).toBe(true);
    expect(decodeRoster(bytes.subarray(1))).toBeUndefined();
  });

  test("commands and state of version 1 are these bytes", () => {
    expect(encodeCommand({ kind: "place", shard: 300, nodes: [1, 2, 3] }).toString("hex")).toBe(
      "0104ac0203010203",
    );
    const join: RosterCommand = { kind: "join", site: siteOf(4, { zone: "z" }) };
    const ids = `${"0".repeat(31)}4${"d".repeat(31)}4`;
    const named = "026e3400" + "05686f7374341ce8" + "017a";
    expect(encodeCommand(join).toString("hex")).toBe(`0101${ids}${named}`);
    const going: Site = {
      ...siteOf(4, { zone: "z" }),
      ...{ node: 4, state: "evacuating", addressNumber: 5 },
    };
    const roster: Roster = {
      ...{ cluster: "c", replicas: 1, placements: new Map([[7, [4]]]) },
      sites: new Map([[4, going]]),
    };
    const bytes = `0101630101${"040205"}${ids}${named}${"01070104"}`;
    expect(encodeRoster(roster).toString("hex")).toBe(bytes);
  });

  test("notes between nodes read as they were written", () => {
    const answers: RosterAnswer[] = [
      { ok: true },
      { ok: true, node: 4 },
      { ok: false, reason: "no" },
    ];
    for (const answer of answers) {
      const note = { kind: "answer", id: 9, answer } as const;
      expect(decodeRosterNote(encodeRosterNote(note))).toEqual(note);
    }
    const ask = { kind: "ask", id: 10, command: commands[1] as RosterCommand } as const;
    expect(decodeRosterNote(encodeRosterNote(ask))).toEqual(ask);
    const clock = { kind: "clock", id: 11, wallUs: 12 } as const;
    expect(decodeRosterNote(encodeRosterNote(clock))).toEqual(clock);
    expect(decodeRosterNote(Buffer.from("no note"))).toBeUndefined();
  });
});
