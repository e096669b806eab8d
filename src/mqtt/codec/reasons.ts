// Reason codes of MQTT 5 (section 2.4), which packet may carry which, and the CONNACK return codes
// of 3.1.1 that stand for some of them.

export type ReasonCode = number;

export const reason = {
  success: 0x00,
  normalDisconnection: 0x00,
  grantedQos1: 0x01,
  grantedQos2: 0x02,
  disconnectWithWill: 0x04,
  noMatchingSubscribers: 0x10,
  noSubscriptionExisted: 0x11,
  continueAuthentication: 0x18,
  reauthenticate: 0x19,
  unspecifiedError: 0x80,
  malformedPacket: 0x81,
  protocolError: 0x82,
  implementationSpecificError: 0x83,
  unsupportedProtocolVersion: 0x84,
  clientIdentifierNotValid: 0x85,
  badUserNameOrPassword: 0x86,
  notAuthorized: 0x87,
  serverUnavailable: 0x88,
  serverBusy: 0x89,
  banned: 0x8a,
  serverShuttingDown: 0x8b,
  badAuthenticationMethod: 0x8c,
  keepAliveTimeout: 0x8d,
  sessionTakenOver: 0x8e,
  topicFilterInvalid: 0x8f,
  topicNameInvalid: 0x90,
  packetIdentifierInUse: 0x91,
  packetIdentifierNotFound: 0x92,
  receiveMaximumExceeded: 0x93,
  topicAliasInvalid: 0x94,
  packetTooLarge: 0x95,
  messageRateTooHigh: 0x96,
  quotaExceeded: 0x97,
  administrativeAction: 0x98,
  payloadFormatInvalid: 0x99,
  retainNotSupported: 0x9a,
  qosNotSupported: 0x9b,
  useAnotherServer: 0x9c,
  serverMoved: 0x9d,
  sharedSubscriptionsNotSupported: 0x9e,
  connectionRateExceeded: 0x9f,
  maximumConnectTime: 0xa0,
  subscriptionIdentifiersNotSupported: 0xa1,
  wildcardSubscriptionsNotSupported: 0xa2,
} as const;

const publishAck = [0x00, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99];
const release = [0x00, 0x92];
const connack = [
  0x00, 0x80, 0x81, 0x82, 0x83, 0x84, 0x85, 0x86, 0x87, 0x88, 0x89, 0x8a, 0x8c, 0x90, 0x95, 0x97,
  0x99, 0x9a, 0x9b, 0x9c, 0x9d, 0x9f,
];
const suback = [0x00, 0x01, 0x02, 0x80, 0x83, 0x87, 0x8f, 0x91, 0x97, 0x9e, 0xa1, 0xa2];
const unsuback = [0x00, 0x11, 0x80, 0x83, 0x87, 0x8f, 0x91];
const disconnectOfClient = [
  0x00, 0x04, 0x80, 0x81, 0x82, 0x83, 0x90, 0x93, 0x94, 0x95, 0x96, 0x97, 0x98, 0x99,
];
const disconnectOfServer = [
  0x00, 0x80, 0x81, 0x82, 0x83, 0x87, 0x89, 0x8b, 0x8d, 0x8e, 0x8f, 0x90, 0x93, 0x94, 0x95, 0x96,
  0x97, 0x98, 0x99, 0x9a, 0x9b, 0x9c, 0x9d, 0x9e, 0x9f, 0xa0, 0xa1, 0xa2,
];

/** Codes that the standard lists for a packet; any other is a protocol error. */
export const reasonsOf = {
  connack: new Set<ReasonCode>(connack),
  puback: new Set<ReasonCode>(publishAck),
  pubrec: new Set<ReasonCode>(publishAck),
  pubrel: new Set<ReasonCode>(release),
  pubcomp: new Set<ReasonCode>(release),
  suback: new Set<ReasonCode>(suback),
  unsuback: new Set<ReasonCode>(unsuback),
  disconnectOfClient: new Set<ReasonCode>(disconnectOfClient),
  disconnectOfServer: new Set<ReasonCode>(disconnectOfServer),
  authOfClient: new Set<ReasonCode>([0x18, 0x19]),
  authOfServer: new Set<ReasonCode>([0x00, 0x18]),
} as const;

/** The reason as CONNACK can say it: some are only for connections that were accepted. */
export function connackReason(code: ReasonCode): ReasonCode {
  if (reasonsOf.connack.has(code)) return code;
  return code === reason.serverShuttingDown ? reason.serverUnavailable : reason.unspecifiedError;
}

/** The reason as a server's DISCONNECT can say it. */
export function disconnectReason(code: ReasonCode): ReasonCode {
  return reasonsOf.disconnectOfServer.has(code) ? code : reason.unspecifiedError;
}

const returnCodes = new Map<ReasonCode, number>([
  [reason.success, 0],
  [reason.unsupportedProtocolVersion, 1],
  [reason.clientIdentifierNotValid, 2],
  [reason.serverUnavailable, 3],
  [reason.serverBusy, 3],
  [reason.useAnotherServer, 3],
  [reason.serverMoved, 3],
  [reason.quotaExceeded, 3],
  [reason.connectionRateExceeded, 3],
  [reason.badUserNameOrPassword, 4],
  [reason.notAuthorized, 5],
  [reason.banned, 5],
]);

/** The 3.1.1 CONNACK return code of a reason; undefined where there is none: just close. */
export function connackReturnCode(code: ReasonCode): number | undefined {
  return returnCodes.get(connackReason(code));
}

const names = new Map<ReasonCode, string>(
  Object.entries(reason).map(([name, code]) => [
    code,
    name.replace(/[A-Z0-9]+/g, (part) => `_${part.toLowerCase()}`),
  ]),
);

/** `session_taken_over` for 0x8E: for log lines and counters. */
export function reasonName(code: ReasonCode): string {
  return code === reason.success ? "success" : (names.get(code) ?? `0x${code.toString(16)}`);
}
