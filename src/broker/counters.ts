// Counters of the broker, with their help texts.

import { createCounters } from "../base/index.ts";

export function createBrokerCounters() {
  return createCounters({
    connectionsAccepted: "transport connections accepted",
    connectionsFull: "connections closed at once because connectionsMax was reached",
    connectionsPerAddress: "connections closed at once by preAuthSocketsPerAddress",
    clientsConnected: "CONNECTs accepted",
    clientsRefused: "CONNECTs refused, for whatever reason",
    clientsNotAuthorized: "CONNECTs refused for want of rights",
    clientsUnavailable: "CONNECTs refused because the session could not be opened",
    connectTimeouts: "connections closed because no complete CONNECT came in time",
    disconnects: "connections ended by the client's DISCONNECT",
    disconnectsWithWill: "connections ended by a DISCONNECT that asks for the will",
    takeovers: "connections ended because their client id connected again",
    endsProtocolError: "connections ended because of a malformed packet or a broken rule",
    endsKeepAlive: "connections ended because the client was silent for too long",
    endsTransport: "connections that the network or the client cut off",
    endsServer: "connections ended by the broker for another reason",
    publishesQos0: "PUBLISHes received at QoS 0",
    publishesQos1: "PUBLISHes received at QoS 1",
    publishesQos2: "PUBLISHes received at QoS 2",
    publishesStored: "PUBLISHes stored for durable sessions",
    publishesRetained: "PUBLISHes that set or cleared a retained message",
    publishesRepeated: "QoS 2 PUBLISHes that had been taken before",
    publishesUnmatched: "PUBLISHes that nobody was subscribed to",
    publishesDenied: "PUBLISHes dropped for want of rights",
    publishesHeld: "PUBLISHes held back because they could not be stored at once",
    publishesRefused: "PUBLISHes at QoS 1 and 2 refused because they could not be stored",
    publishesAbandoned: "PUBLISHes not acknowledged because their connection ended first",
    qos0Unstored: "QoS 0 PUBLISHes not stored or not retained because the store took none",
    readPauses: "times that reading of a client was paused until the broker had caught up",
    deliveriesQos0: "messages sent at QoS 0",
    deliveriesQos1: "messages sent at QoS 1",
    deliveriesQos2: "messages sent at QoS 2",
    deliveriesDenied: "messages not sent because the reader has no right to them",
    deliveriesTooLarge: "messages not sent because of the client's Maximum Packet Size",
    deliveriesFull: "messages not taken because a client's outbound buffer was full",
    subscribes: "filters subscribed",
    subscribesRefused: "filters refused",
    subscribesLate: "SUBSCRIBEs and UNSUBSCRIBEs that failed because their commit took too long",
    unsubscribes: "filters unsubscribed",
    willsDenied: "wills dropped for want of rights",
    bytesReceived: "bytes read from clients",
    bytesSent: "bytes handed to the network for clients",
    closesForced: "connections cut because they did not take their rest in time",
  });
}

export type BrokerCounters = ReturnType<typeof createBrokerCounters>;
