// What `bench:scale` varies. A series has `points` and measures, at each, the cost of one message with
// all else alike; `growthMax` bounds the dearest point over the cheapest one before it.
//
// `prepare` and `costs` are calls of mqttload with a size `n`; `%RUN` as everywhere.

const thousand = 1000;
const storeArgs = ["store", "-q", "1", "-P", "4", "-S", "1", "-t", "%RUN/%i", "-f", "%RUN/#"];
const replayArgs = ["replay", ...storeArgs.slice(1)];
const four = ["-P", "4", "-S", "4", "-t", "%RUN/%i", "-f", "%RUN/%i"];
const durable = ["pubsub", "-q", "1", "-c", "0", ...four];
/** Sessions made by one call: each is a connection for a moment. */
const sessionsEach = 10 * thousand;

function decades(from, to) {
  const points = [];
  for (let n = from; n <= to; n *= 10) points.push(n);
  return points;
}

function sessionBatches(n) {
  const batches = [];
  for (let left = n; left > 0; left -= sessionsEach) {
    const count = Math.min(left, sessionsEach);
    batches.push(["connect", "-c", "0", "-f", "%RUN/%i", "-j", "50", "-S", String(count)]);
  }
  return batches;
}

/** `costs`: `{ name, args, same }`; `same` uses the run name of the (only) preparation. */
export const scaleSeries = [
  {
    name: "backlog",
    about: "messages that wait for a session that is away",
    points: decades(10_000, 10_000_000),
    growthMax: 1.3,
    prepare: (n) => [[...storeArgs, "-n", String(n)]],
    costs: (n) => [
      { name: "store more", args: [...storeArgs, "-n", "40000"] },
      { name: "replay", args: [...replayArgs, "-n", String(n)], same: true },
    ],
  },
  {
    name: "sessions",
    about: "durable sessions that are away, each with a filter of its own",
    points: decades(100, 1_000_000),
    growthMax: 1.3,
    perUnitRss: true,
    prepare: sessionBatches,
    costs: () => [{ name: "durable 4x4", args: [...durable, "-n", "60000"] }],
  },
  {
    name: "topics",
    about: "topics that four publishers draw from",
    points: decades(100, 1_000_000),
    growthMax: 3,
    prepare: () => [],
    costs: (n) => {
      const range = String(Math.ceil(n / 4));
      const random = ["-P", "4", "-S", "4", "-t", "%RUN/%i/%r", "-f", "%RUN/%i/#", "-R", range];
      return [
        { name: "durable 4x4", args: ["pubsub", "-q", "1", "-c", "0", ...random, "-n", "60000"] },
        { name: "clean 4x4", args: ["pubsub", "-q", "1", ...random, "-n", "100000"] },
      ];
    },
  },
  {
    name: "subscribers",
    about: "clean sessions that get every message; cost by delivery",
    points: decades(1, 10_000),
    growthMax: 1.3,
    prepare: () => [],
    costs: (n) => {
      const count = String(Math.max(60, Math.round(300_000 / n)));
      const args = ["fanout", "-q", "1", "-w", "20", "-t", "%RUN/x", "-f", "%RUN/#"];
      return [{ name: "fan-out", args: [...args, "-S", String(n), "-n", count] }];
    },
  },
  {
    name: "connections",
    about: "connections, half of them publishers with a window of 1 or 4",
    points: decades(10, 10_000),
    prepare: () => [],
    costs: (n) =>
      ["1", "4"].map((window) => {
        const half = String(n / 2);
        const args = ["pubsub", "-q", "1", "-w", window, "-P", half, "-S", half];
        const topics = ["-t", "%RUN/%i", "-f", "%RUN/%i"];
        return { name: `window ${window}`, args: [...args, ...topics, "-n", "60000"] };
      }),
  },
  {
    name: "shards",
    about: "shards of the database of messages",
    points: [1, 2, 4, 8, 16],
    growthMax: 1.3,
    settings: (n) => [`databases.messages.shards=${n}`],
    prepare: () => [],
    costs: () => [{ name: "durable 4x4", args: [...durable, "-n", "100000"] }],
  },
];
