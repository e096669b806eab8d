// The configuration of a node as the settings of its rooms: names and units change hands here, and
// what no key reaches keeps the default of its room. Pure.

import type { AdminSettings } from "../admin/index.ts";
import { type DiskSpace, joinPath } from "../base/index.ts";
import { type BrokerSettings, brokerSettingsDefault } from "../broker/index.ts";
import { defaultLogSettings, type LogSettings } from "../log/index.ts";
import { type Qos, reason, serverConnectionSettingsDefault } from "../mqtt/index.ts";
import { type SessionSettings, sessionSettingsDefault } from "../session/index.ts";
import {
  type DatabaseSpec,
  type GroupSettings,
  type StoreSettings,
  storeSettingsDefault,
} from "../store/index.ts";
import { parseTopicFilter } from "../topic/index.ts";
import type { Settings } from "./config/keys.ts";
import { rootThresholdsOf } from "./config/root-thresholds.ts";

/** Folders of a data directory (docs/formats/data-dir.md). */
export type DataPaths = { readonly log: string; readonly db: string; readonly quarantine: string };

export function dataPaths(dataDir: string): DataPaths {
  return {
    log: joinPath(dataDir, "log"),
    db: joinPath(dataDir, "db"),
    quarantine: joinPath(dataDir, "quarantine"),
  };
}

/**
 * Beside the largest packet a log record holds its topic once more, and what the same turn put into
 * the same entry before it (at most 256 KiB).
 */
const recordSpareBytes = 1024 * 1024;

/** Segments of a small volume are smaller, so that two dozen of them have room. */
const segmentShare = 1 / 32;
const segmentBytesMin = 1024 * 1024;

function segmentBytesOf(wantedBytes: number, totalBytes: number): number {
  const share = Math.floor((totalBytes * segmentShare) / segmentBytesMin) * segmentBytesMin;
  return Math.min(wantedBytes, Math.max(segmentBytesMin, share));
}

export function logSettings({ log, mqtt, groups }: Settings, space: DiskSpace): LogSettings {
  // The log counts against quotas too.
  const quotas = Object.values(groups).map(({ quotaBytes }) => quotaBytes || space.totalBytes);
  return {
    ...defaultLogSettings,
    segmentBytes: segmentBytesOf(log.segmentBytes, Math.min(space.totalBytes, ...quotas)),
    flushBytesMax: log.flushBytesMax,
    flushRecordsMax: log.maxItems,
    flushIntervalMs: log.flushIntervalMs,
    idleFlushIntervalMs: log.idleFlushIntervalMs,
    onDamage: log.onDamage,
    spareSegmentsMax: log.spareSegmentsMax,
    recordBytesMax: mqtt.maxPacketSizeBytes + recordSpareBytes,
    // Publishes stop at the store's brim; the second half is left to the progress of sessions.
    pendingBytesMax: 2 * log.pendingBytesMax,
  };
}

export function storeSettings(settings: Settings, paths: DataPaths): StoreSettings {
  const { databases, groups, log, store } = settings;
  const { messages, state, ...others } = databases;
  if (messages === undefined || state === undefined) throw new Error("built-in databases are kept");
  const { layoutOptions, retention } = messages;
  const { lts } = storeSettingsDefault;
  return {
    ...storeSettingsDefault,
    dir: paths.db,
    quarantineDir: paths.quarantine,
    shards: messages.shards,
    topics: messages.topics,
    stateShards: state.shards,
    databases: Object.entries(others).map(([name, each]) => databaseSpec(name, each)),
    checkpoint: { bytesMax: store.checkpointBytes, ageMsMax: store.checkpointAgeMs },
    groups: Object.entries(groups).map(([name, group]): GroupSettings => {
      const { databases: members, quotaBytes, onFull, fsync, workSlots } = group;
      const writeBufferBytesMax = group.writeBufferBytes;
      return {
        name,
        databases: members,
        quotaBytes,
        onFull,
        fsync,
        writeBufferBytesMax,
        workSlots,
      };
    }),
    pendingBytesMax: log.pendingBytesMax,
    blockCacheBytesMax: store.blockCacheBytes,
    readAheadBytesMax: store.readAheadBytes,
    openSlabsMax: store.openSlabs,
    retention: { ageMs: retention.ageMs, bytes: retention.sizeBytes },
    lts: {
      ...lts,
      thresholds: [layoutOptions.rootThreshold, layoutOptions.threshold],
      ...(layoutOptions.rootThresholds.length > 0 && {
        rootThresholds: new Map(Object.entries(rootThresholdsOf(layoutOptions.rootThresholds))),
      }),
      dollarThresholds: [layoutOptions.rootThreshold, layoutOptions.threshold],
      patterns: layoutOptions.patterns.map((pattern) => parseTopicFilter(pattern)),
      bytesMax: layoutOptions.trieBytesMax,
      streamsMax: layoutOptions.streamsMax,
      cacheTopicsMax: store.topicCacheMax,
    },
  };
}

function databaseSpec(name: string, database: Settings["databases"][string]): DatabaseSpec {
  const { layout, shards, topics, retention, layoutOptions } = database;
  const { rootThreshold, threshold, patterns, streamsMax, trieBytesMax } = layoutOptions;
  const rootThresholds = rootThresholdsOf(layoutOptions.rootThresholds);
  return {
    ...{ name, layout, shards, topics },
    retention: { ageMs: retention.ageMs, bytes: retention.sizeBytes },
    layoutOptions: {
      ...{ patterns, streamsMax, trieBytesMax },
      thresholds: [rootThreshold, threshold],
      ...(Object.keys(rootThresholds).length > 0 && { rootThresholds }),
    },
  };
}

export function sessionSettings({ mqtt, sessions }: Settings): SessionSettings {
  return {
    ...sessionSettingsDefault,
    sessionsPerUserMax: sessions.perUserMax,
    takeoverWaitMs: sessions.takeoverWaitMs,
    backlogMax: sessions.backlogMax,
    sharedStrategy: sessions.sharedStrategy,
    inflightMax: mqtt.inflightMax,
    inflightBytesMax: mqtt.inflightBytesMax,
    subscriptionsMax: mqtt.subscriptionsMax,
    subscriptionBytesMax: mqtt.subscriptionBytesMax,
    restartGraceMs: mqtt.restartGraceMs,
    memoryQueueMax: mqtt.memoryQueueMax,
    memoryQueueBytesMax: mqtt.memoryQueueBytesMax,
  };
}

export function adminSettings({ admin }: Settings): AdminSettings {
  return {
    host: admin.host,
    port: admin.port,
    hosts: admin.hosts.map((name) => name.toLowerCase()),
    openMetrics: admin.openMetrics,
    bodyBytesMax: admin.bodyBytesMax,
    requestsMax: admin.requestsMax,
    auditBytesMax: admin.auditBytesMax,
  };
}

const denySubscribeCodes = {
  not_authorized: reason.notAuthorized,
  unspecified: reason.unspecifiedError,
};

export function brokerSettings({ mqtt, protection, devices }: Settings): BrokerSettings {
  return {
    ...brokerSettingsDefault,
    mqtt: {
      ...serverConnectionSettingsDefault,
      maxPacketSize: mqtt.maxPacketSizeBytes,
      preAuthPacketBytesMax: mqtt.preAuthBytes,
      // One more packet of that size may come behind CONNECT.
      heldBytesMax: 2 * mqtt.preAuthBytes,
      connectTimeoutMs: mqtt.preAuthTimeMs,
      receiveMaximum: mqtt.receiveMaximum,
      topicAliasMaximum: mqtt.topicAliasMaximum,
      topicAliasMaximumOut: mqtt.topicAliasMaximum,
      keepAliveMaxS: keepAliveSeconds(mqtt.keepAliveMsMax),
      userPropertiesMax: mqtt.userPropertiesMax,
      topicLevelsMax: mqtt.topicLevelsMax,
      filtersMax: mqtt.filtersMax,
      refuseControlCharacters: mqtt.refuseControlCharacters,
      maximumQos: mqtt.maximumQos as Qos,
      retainAvailable: mqtt.retainAvailable,
      responseInformation: mqtt.responseInformation,
    },
    serverReference: mqtt.serverReference,
    denySubscribeCode: denySubscribeCodes[mqtt.denySubscribeCode],
    sessionExpiryMaxS: Math.floor(mqtt.sessionExpiryMsMax / 1000),
    publishWaitMs: mqtt.publishWaitMs,
    hookTimeoutMs: mqtt.hookTimeoutMs,
    subscribeWaitMs: mqtt.subscribeWaitMs,
    connectWaitMs: mqtt.connectWaitMs,
    storeQos0: mqtt.storeQos0,
    outboundBufferBytesMax: mqtt.outboundBufferBytesMax,
    publishBytesMax: mqtt.publishBytesMax,
    publishesMax: mqtt.publishesMax,
    connectionsMax: mqtt.connectionsMax,
    preAuthSocketsPerAddress: mqtt.preAuthSocketsPerAddress,
    clientIdBytesMax: mqtt.clientIdBytesMax,
    connectionsPerAddressMax: protection.connectionsPerAddress,
    connectsPerS: protection.connectRate,
    connectsPerSPerAddress: protection.connectRatePerAddress,
    messagesPerS: protection.messageRate,
    bytesPerS: protection.byteRateBytes,
    messagesPerSPerAddress: protection.messageRatePerAddress,
    bytesPerSPerAddress: protection.byteRatePerAddressBytes,
    overload: { lagMsMax: protection.overloadLagMs, memoryBytesMax: protection.memoryBytesMax },
    throttle: {
      ...brokerSettingsDefault.throttle,
      failedPerNameMax: protection.failedLogins,
      failedPerAddressMax: protection.failedLoginsPerAddress,
    },
    flapping: {
      ...brokerSettingsDefault.flapping,
      takeoversMax: protection.flappingTakeovers,
      unhurriedMax: protection.flappingSlowdown,
    },
    devices: Object.values(devices).map(({ clientIds, packetBytesMax, messageRate }) => ({
      ...{ clientIds, packetBytesMax, messagesPerS: messageRate },
    })),
    sysIntervalMs: protection.sysIntervalMs,
  };
}

/** The broker's "any" is 0. */
function keepAliveSeconds(keepAliveMsMax: number): number {
  return Number.isFinite(keepAliveMsMax) ? Math.floor(keepAliveMsMax / 1000) : 0;
}
