// What is measured. Each scenario is one call of mqttload, in which `%RUN` stands for a name of the
// run: client ids and topics never meet those of another run on the same broker. 100-byte payloads,
// MQTT 3.1.1, as in mqttload's defaults.

/** `rate` names the field of mqttload's result that counts, `countMin` what the warm-up sends. */
export const scenarios = [
  {
    name: "qos0-4x4",
    about: "QoS 0, 4 publishers to 4 subscribers, one topic each, 100 under way",
    args: ["pubsub", "-q", "0", "-P", "4", "-S", "4", "-t", "%RUN/%i", "-f", "%RUN/%i"],
    rate: "recv_per_s",
    unit: "messages/s",
    countMin: 40_000,
  },
  {
    name: "qos1-4x4",
    about: "QoS 1, the same, window 100, clean sessions: nothing is stored",
    args: ["pubsub", "-q", "1", "-P", "4", "-S", "4", "-t", "%RUN/%i", "-f", "%RUN/%i"],
    rate: "recv_per_s",
    unit: "messages/s",
    countMin: 40_000,
  },
  {
    name: "qos1-4x4-durable",
    about: "QoS 1, the same into durable sessions that are connected",
    args: ["pubsub", "-q", "1", "-c", "0", "-P", "4", "-S", "4", "-t", "%RUN/%i", "-f", "%RUN/%i"],
    rate: "recv_per_s",
    unit: "messages/s",
    countMin: 20_000,
  },
  {
    name: "fanout-100",
    about: "QoS 1, one publisher to 100 clean sessions, window 20",
    args: ["fanout", "-q", "1", "-S", "100", "-w", "20", "-t", "%RUN/x", "-f", "%RUN/#"],
    rate: "recv_per_s",
    unit: "deliveries/s",
    countMin: 500,
  },
  {
    name: "store",
    about: "QoS 1, 4 publishers into 3 durable sessions that are away, window 100",
    args: ["store", "-q", "1", "-P", "4", "-S", "3", "-t", "%RUN/%i", "-f", "%RUN/#"],
    rate: "pub_per_s",
    unit: "messages/s",
    countMin: 20_000,
    next: "replay",
  },
  {
    name: "replay",
    about: "the 3 sessions come back for that backlog",
    args: ["replay", "-q", "1", "-P", "4", "-S", "3", "-t", "%RUN/%i", "-f", "%RUN/#"],
    rate: "recv_per_s",
    unit: "deliveries/s",
  },
  {
    name: "connect",
    about: "new connections with clean sessions, 50 at a time",
    args: ["connect", "-j", "50"],
    rate: "conn_per_s",
    unit: "connections/s",
    countFlag: "-S",
    countMin: 2000,
    countMax: 8000,
  },
  {
    name: "paced-5k",
    about: "QoS 1 at 5,000/s into a connected durable session: latency in microseconds",
    args: ["paced", "-q", "1", "-r", "5000", "-u", "1", "-t", "%RUN/%i", "-f", "%RUN/#"],
    rate: "recv_per_s",
    unit: "messages/s",
    countMin: 10_000,
    ratePinned: 5000,
  },
];
