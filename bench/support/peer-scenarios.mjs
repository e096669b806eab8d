// What `bench:peers` measures, and what it asks of the result: each scenario is one call of mqttload
// or two that belong together. 100-byte payloads and MQTT 3.1.1 where nothing else is said.
//
// `rate` names the field of mqttload's result that counts; `atLeast` is the ratio that Flagstone is to
// reach, to which peer, and by which scenario of that peer where it is another one; `atMost` bounds
// figures of Flagstone's own. `countMax` keeps a run of a slow peer short.

const pairs = ["-P", "4", "-S", "4"];
const fixed = ["-t", "%RUN/%i", "-f", "%RUN/%i"];
const random = ["-t", "%RUN/%i/%r", "-f", "%RUN/%i/#", "-R", "1000"];
const backlog = ["-q", "1", "-P", "4", "-S", "3", "-w", "100"];

function pubsub(name, args, options) {
  return { name, args: ["pubsub", ...args], rate: "recv_per_s", countMin: 20_000, ...options };
}

/** Into three sessions that are away, and their return for it. */
function stored(suffix, args, { store, replay }) {
  const next = `replay${suffix}`;
  return [
    {
      name: `store${suffix}`,
      args: ["store", ...backlog, ...args],
      rate: "pub_per_s",
      countMin: 20_000,
      next,
      ...store,
    },
    { name: next, args: ["replay", ...backlog, ...args], rate: "recv_per_s", ...replay },
  ];
}

const inStore = { peer: "mosquitto", of: "store" };
const inReplay = { peer: "mosquitto", of: "replay" };

export const peerScenarios = [
  pubsub("qos0", ["-q", "0", ...pairs, ...fixed], {
    about: "QoS 0, 4 publishers to 4 subscribers, a topic for each pair",
    countMin: 40_000,
    atLeast: { ratio: 2.5, peer: "nats" },
  }),
  pubsub("qos0-random", ["-q", "0", ...pairs, ...random], {
    about: "the same over 1,000 topics for each publisher",
    countMin: 40_000,
    atLeast: { ratio: 1.2, peer: "nats", of: "qos0" },
  }),
  pubsub("qos1", ["-q", "1", "-w", "100", ...pairs, ...fixed], {
    about: "QoS 1, window 100, clean sessions: nothing is stored",
    countMin: 40_000,
    atLeast: { ratio: 25, peer: "mosquitto" },
  }),
  pubsub("qos1-random", ["-q", "1", "-w", "100", ...pairs, ...random], {
    about: "the same over 1,000 topics for each publisher",
    atLeast: { ratio: 15, peer: "mosquitto", of: "qos1" },
  }),
  pubsub("durable", ["-q", "1", "-c", "0", "-w", "100", ...pairs, ...fixed], {
    about: "QoS 1 into durable sessions that are connected: all is stored",
    atLeast: { ratio: 6, peer: "mosquitto", of: "qos1" },
  }),
  pubsub("durable-random", ["-q", "1", "-c", "0", "-w", "100", ...pairs, ...random], {
    about: "the same over 1,000 topics for each publisher",
    atLeast: { ratio: 3, peer: "mosquitto", of: "qos1" },
  }),
  pubsub("durable-qos2", ["-q", "2", "-c", "0", "-w", "100", ...pairs, ...fixed], {
    about: "QoS 2 into durable sessions that are connected",
    countMin: 5000,
    atLeast: { ratio: 1, peer: "mosquitto", of: "qos1" },
  }),
  {
    name: "fanout",
    about: "QoS 1, one publisher to 100 clean sessions, window 20; deliveries/s",
    args: ["fanout", "-q", "1", "-S", "100", "-w", "20", "-t", "%RUN/x", "-f", "%RUN/#"],
    rate: "recv_per_s",
    countRate: "pub_per_s",
    countMin: 500,
    atLeast: { ratio: 12, peer: "mosquitto" },
  },
  ...stored("", ["-t", "%RUN/%i", "-f", "%RUN/#"], {
    store: {
      about: "QoS 1 into 3 durable sessions that are away",
      atLeast: { ratio: 4, ...inStore },
    },
    replay: { about: "their return; deliveries/s", atLeast: { ratio: 10, ...inReplay } },
  }),
  ...stored("-random", ["-t", "%RUN/%i/%r", "-f", "%RUN/#", "-R", "1000"], {
    store: { about: "store over 1,000 topics each", atLeast: { ratio: 3, ...inStore } },
    replay: { about: "replay of that", atLeast: { ratio: 5, ...inReplay } },
  }),
  ...stored("-1k", ["-s", "1024", "-t", "%RUN/%i", "-f", "%RUN/#"], {
    store: {
      about: "store of 1 KiB",
      atLeast: { ratio: 1.5, peer: "mosquitto" },
      countMin: 10_000,
    },
    replay: { about: "replay of that", atLeast: { ratio: 3, peer: "mosquitto" } },
  }),
  pubsub("pairs-w1", ["-q", "1", "-P", "200", "-S", "200", "-w", "1", ...fixed], {
    about: "200 pairs, window 1, clean sessions",
    countMin: 10_000,
    atLeast: { ratio: 1, peer: "mosquitto" },
  }),
  pubsub("pairs-w4", ["-q", "1", "-P", "100", "-S", "100", "-w", "4", ...fixed], {
    about: "100 pairs, window 4, clean sessions",
    countMin: 10_000,
    atLeast: { ratio: 3, peer: "mosquitto" },
  }),
  {
    name: "connect",
    about: "new connections with clean sessions, 50 at a time",
    args: ["connect", "-j", "50"],
    rate: "conn_per_s",
    countFlag: "-S",
    countMin: 3000,
    countMax: 3000,
    atLeast: { ratio: 0.5, peer: "mosquitto" },
  },
  {
    name: "connect-durable",
    about: "new durable sessions, each with a filter",
    args: ["connect", "-j", "50", "-c", "0", "-f", "%RUN/%i"],
    rate: "conn_per_s",
    countFlag: "-S",
    countMin: 3000,
    countMax: 3000,
    next: "resume-durable",
    atLeast: { ratio: 0.35, peer: "mosquitto" },
  },
  {
    name: "resume-durable",
    about: "these sessions come back",
    args: ["connect", "-j", "50", "-c", "0"],
    rate: "conn_per_s",
    countFlag: "-S",
    atLeast: { ratio: 1.5, peer: "nats" },
  },
  {
    name: "paced",
    about: "QoS 1 at 5,000/s into a connected durable session: latency",
    args: ["paced", "-q", "1", "-w", "1000", "-r", "5000", "-u", "1", ...fixed],
    rate: "recv_per_s",
    countMin: 10_000,
    ratePinned: 5000,
    atMost: [
      { figure: "p99", us: 2000 },
      { figure: "p999", us: 10_000 },
    ],
  },
];
