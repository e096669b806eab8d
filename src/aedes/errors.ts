// Errors of the Aedes room.

import { defineErrors, type ErrorCodes } from "../base/index.ts";

export const aedesErrors = defineErrors({
  packetUnknown: {
    code: "AEDES_PACKET_UNKNOWN",
    kind: "invalid",
    message: 'no packet {packet} is kept for client "{client}"',
    help: "It was acknowledged already, or never stored; Aedes takes this for an answer.",
  },
  closed: {
    code: "AEDES_CLOSED",
    kind: "closed",
    message: "the Aedes persistence is closed",
    help: "It was destroyed by its owner; open it again.",
  },
  notSetUp: {
    code: "AEDES_NOT_SET_UP",
    kind: "invalid",
    message: "the Aedes persistence was used before its setup was done",
    help: "Wait for `setup(broker)`, as Aedes.createBroker does, or for the event `ready`.",
  },
  emitterFull: {
    code: "AEDES_EMITTER_FULL",
    kind: "limit",
    message: "{limit} messages are on their way between the Aedes processes",
    help: "The broker or a listener is behind; emit less, or raise `pendingMax`.",
  },
  migrationSource: {
    code: "AEDES_MIGRATION_SOURCE_INVALID",
    kind: "invalid",
    message: "the source cannot be read: {reason}",
    help: "Give an open database of the kind that the reader is for.",
  },
  nameInvalid: {
    code: "AEDES_NAME_INVALID",
    kind: "invalid",
    message: "{name} cannot be the name of an Aedes persistence",
    help: "Use 1 to 64 of a-z, A-Z, 0-9, `_` and `-`.",
  },
  recordCorrupt: {
    code: "AEDES_RECORD_CORRUPT",
    kind: "corrupt",
    message: "the stored record {key} cannot be read: {reason}",
    help: "The record is passed over; what it held is lost. Look at the volume.",
  },
  recordNewer: {
    code: "AEDES_RECORD_NEWER",
    kind: "corrupt",
    message: "the stored record {key} has version {version}, which this version does not know",
    help: "Use the version of Flagstone that wrote it, or a later one.",
  },
});

export type AedesErrorCode = ErrorCodes<typeof aedesErrors>;
