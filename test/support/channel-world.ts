// Channels of some nodes over ways that keep the order of what they carry, and lose or refuse as they are
// told.

import { SeededRandom, SimClock, silentLogger } from "../../src/base/index.ts";
import { createClusterCounters } from "../../src/cluster/counters.ts";
import { type ChannelSettings, MemberChannel } from "../../src/cluster/index.ts";

type Way = { lost: boolean; refused: boolean; queue: Buffer[] };

export class ChannelWorld {
  readonly clock = new SimClock({ random: new SeededRandom(5) });
  readonly counters = createClusterCounters();
  readonly nodes = new Map<number, MemberChannel>();
  readonly ways = new Map<string, Way>();
  members: readonly number[] = [1, 2, 3];
  #starts = 0;

  way(from: number, to: number): Way {
    const key = `${from}>${to}`;
    const known = this.ways.get(key) ?? { lost: false, refused: false, queue: [] };
    this.ways.set(key, known);
    return known;
  }

  /** What a node says after its end goes nowhere. */
  end(node: number): void {
    this.nodes.get(node)?.close();
    this.nodes.delete(node);
  }

  /** The second start of a node is another life. */
  add(node: number, settings: Partial<ChannelSettings> = {}): MemberChannel {
    const channel = new MemberChannel({
      ...{ node, start: `life ${++this.#starts}`, clock: this.clock, counters: this.counters },
      ...{ logger: silentLogger, settings, members: () => this.members },
      send: (to, bytes) => {
        const way = this.way(node, to);
        if (way.refused) return false;
        if (way.lost) return true;
        way.queue.push(Buffer.from(bytes));
        this.clock.schedule(1, () => {
          this.nodes.get(to)?.receive(node, way.queue.shift() as Buffer);
        });
        return true;
      },
    });
    this.nodes.set(node, channel);
    channel.begin();
    return channel;
  }
}
