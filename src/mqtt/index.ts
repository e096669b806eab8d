// The face of the mqtt room, published as `flagstone/mqtt`.
export { decodePacket, firstByteFault } from "./codec/decode.ts";
export { type DecodeContext, decodeContextDefault } from "./codec/decode-context.ts";
export { encodePacket } from "./codec/encode.ts";
export {
  type ForwardOptions,
  forwardPublish,
  forwardSize,
  rebuildPublish,
  writeForward,
} from "./codec/forward.ts";
export {
  createFrame,
  describeFrame,
  type FrameContent,
  type FrameLayout,
  framePayload,
  frameProperties,
} from "./codec/frame-layout.ts";
export { type FrameSink, PacketFramer } from "./codec/framer.ts";
export { ChunkPool, OutputBuffer } from "./codec/output.ts";
export * from "./codec/packets.ts";
export { noProperties, type Properties, type UserProperty } from "./codec/properties.ts";
export { publishPropertiesFault } from "./codec/property-check.ts";
export {
  canonicalFrame,
  forwardableFrame,
  InboundPublish,
  PublishReader,
  type StoredFrame,
} from "./codec/publish-frame.ts";
export { PublishRun, RunReader, runFramesMax } from "./codec/publish-run.ts";
export { connackReturnCode, type ReasonCode, reason, reasonName } from "./codec/reasons.ts";
export { type FrameRun, StoredRun } from "./codec/stored-run.ts";
export { KnownTopic, TopicTable } from "./codec/topic-table.ts";
export type { AckToken } from "./core/ack-queue.ts";
export {
  ClientConnection,
  type ClientEnd,
  type ClientEvents,
  type ClientMessage,
  type ClientSettings,
  clientSettingsDefault,
} from "./core/client-connection.ts";
export { ClientSession } from "./core/client-session.ts";
export { InboundQos2 } from "./core/inbound-qos2.ts";
export {
  type AckOutcome,
  type OutboundEntry,
  type OutboundStage,
  OutboundWindow,
  type WindowLimits,
} from "./core/outbound-window.ts";
export { type IdsInUse, PacketIds } from "./core/packet-ids.ts";
export type { SendOptions, SendResult } from "./core/packet-sender.ts";
export { type ConnectionState, ServerConnection } from "./core/server-connection.ts";
export * from "./core/server-types.ts";
export { mqttErrors, reasonCodeOf } from "./errors.ts";
