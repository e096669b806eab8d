// What can go wrong while a node is configured and started. The sentences are for operators: what
// happened, to which thing, what to do.

import { defineErrors } from "../base/index.ts";

export const configErrors = defineErrors({
  invalid: {
    code: "CONFIG_INVALID",
    kind: "invalid",
    message: "{text}",
    help: "Mend the named places; `flagstone config check` shows them without starting.",
  },
  unreadable: {
    code: "CONFIG_FILE_UNREADABLE",
    kind: "invalid",
    message: 'cannot read the configuration file "{path}": {reason}',
    help: "Check the path after --config and the file's owner and mode.",
  },
});

export const nodeErrors = defineErrors({
  closed: {
    code: "NODE_CLOSED",
    kind: "closed",
    message: "the node is closed",
    help: "Start another one; what was durable is there.",
  },
  crashed: {
    code: "NODE_CRASHED",
    kind: "closed",
    message: "the node lost its power: `crash()` was called",
    help: "Subscribe again: the broker runs with what was durable.",
  },
  crashInMemoryOnly: {
    code: "NODE_CRASH_IN_MEMORY_ONLY",
    kind: "invalid",
    message: "only a broker in memory can be crashed",
    help: "Create it with `memory: true`.",
  },
  clockNotManual: {
    code: "NODE_CLOCK_NOT_MANUAL",
    kind: "invalid",
    message: "the clock of this broker cannot be turned by hand",
    help: 'Create it with `clock: "manual"`.',
  },
  argumentInvalid: {
    code: "NODE_ARGUMENT_INVALID",
    kind: "invalid",
    message: "{what}: {reason}",
    help: "The call is wrong, and nothing was done: change it as the message says.",
  },
  placeMissing: {
    code: "NODE_PLACE_MISSING",
    kind: "invalid",
    message: "a broker needs a place for its data: {reason}",
    help: "Give `memory: true` for a test, or `dir`.",
  },
  subscribeRefused: {
    code: "NODE_SUBSCRIBE_REFUSED",
    kind: "limit",
    message: 'the subscription of "{filter}" was refused with reason code {reasonCode}',
    help: "One client has a limit of subscriptions (mqtt.subscriptionsMax), the store one of space.",
  },
  subscriptionOverrun: {
    code: "NODE_SUBSCRIPTION_OVERRUN",
    kind: "limit",
    message: "the subscription was ended by the broker with reason code {reasonCode}",
    help: "0x97: more waited than memory may hold; read faster or subscribe with a name. 0x8E: taken over.",
  },
  certificateRefused: {
    code: "NODE_CERTIFICATE_REFUSED",
    kind: "invalid",
    message: "the certificate of listener {listener} is not taken: {reason}",
    help: "The old one goes on, and nothing else was taken either. Mend cert and key, and reload.",
  },
  securityFileUnreadable: {
    code: "NODE_SECURITY_FILE_UNREADABLE",
    kind: "invalid",
    message: 'cannot use the file "{path}": {reason}',
    help: "Users, rules, keys and certificates are read whole or not at all; what held before holds.",
  },
  storeOnly: {
    code: "NODE_STORE_ONLY",
    kind: "invalid",
    message: "this is a store node of a cluster: it has no MQTT, no users and no rules",
    help: "Use `store`, ask a node that serves, or start this one without cluster.storeOnly.",
  },
  dataDirInUse: {
    code: "NODE_DATA_DIR_IN_USE",
    kind: "invalid",
    message:
      'cannot open data directory "{path}": in use by {holder}; ' +
      "stop it or choose another data.dir",
    help: "One node per data directory. The lock goes with its process, however that ended.",
  },
  dataDirDenied: {
    code: "NODE_DATA_DIR_DENIED",
    kind: "invalid",
    message:
      'cannot open data directory "{path}": this user may not read and write it; ' +
      "change its owner or choose another data.dir",
    help: "The node needs a directory of its own, mode 0700, owned by the user that runs it.",
  },
  dataDirReadOnly: {
    code: "NODE_DATA_DIR_READ_ONLY",
    kind: "invalid",
    message:
      'cannot open data directory "{path}": its volume is mounted read-only; ' +
      "mount it writable or choose another data.dir",
    help: "A volume that was writable before may have been remounted after an IO error: see dmesg.",
  },
  dataDirNetwork: {
    code: "NODE_DATA_DIR_NETWORK",
    kind: "invalid",
    message:
      'cannot open data directory "{path}": it lies on a network file system ({type}), ' +
      "where locks and syncs cannot be trusted; choose a data.dir on a local volume",
    help: "nfs, smb, cifs, 9p and ceph are refused. Use a local disk or a block device.",
  },
  dataDirForeign: {
    code: "NODE_DATA_DIR_FOREIGN",
    kind: "invalid",
    message:
      'cannot open data directory "{path}": it holds "{name}", which is not Flagstone\'s; ' +
      "choose an empty data.dir",
    help: "A new data directory must be empty, so that nothing of yours is mixed up with ours.",
  },
  dataDirNewer: {
    code: "NODE_DATA_DIR_NEWER",
    kind: "invalid",
    message:
      'cannot open data directory "{path}": it was written by a newer version ' +
      "(format {format}, this one reads up to {formatMax}); start that version again",
    help: "Formats are never read backwards. Use the version that wrote the directory, or a newer one.",
  },
  dataDirDamaged: {
    code: "NODE_DATA_DIR_DAMAGED",
    kind: "corrupt",
    message:
      'cannot open data directory "{path}": both FLAGSTONE and FLAGSTONE.copy are damaged; ' +
      "restore one of them from a backup",
    help: "The two files say which format the directory has. One intact copy is enough.",
  },
  dataDirOfCluster: {
    code: "NODE_DATA_DIR_OF_CLUSTER",
    kind: "invalid",
    message:
      'cannot open data directory "{path}" for a node by itself: it is a replica of a cluster; ' +
      "start it with cluster.name, cluster.node and cluster.storeOnly, or choose another data.dir",
    help: "A replica does not become a local directory again: what is in it alone may not count.",
  },
  dataDirLocal: {
    code: "NODE_DATA_DIR_LOCAL",
    kind: "invalid",
    message:
      'cannot open data directory "{path}" for a member of a cluster: it holds the data of a node ' +
      "that ran by itself; make it the first replica with `flagstone cluster init`, " +
      "or choose an empty data.dir",
    help: "Nothing is dropped to join: a new member begins with an empty directory.",
  },
  dataDirFull: {
    code: "NODE_DATA_DIR_FULL",
    kind: "retry",
    message:
      'cannot open data directory "{path}": its volume has {free} free and a start needs about ' +
      "{needed}; free space, or move the directory to a larger volume and name it in data.dir",
    help: "Nothing is lost. Remove what is not Flagstone's from the volume, then start again.",
  },
  dataDirFailed: {
    code: "NODE_DATA_DIR_FAILED",
    kind: "internal",
    message: 'cannot open data directory "{path}": {reason}',
    help: "The volume did not do what was asked. Check the device, its free space and its mount.",
  },
  listenFailed: {
    code: "NODE_LISTEN_FAILED",
    kind: "invalid",
    message: "cannot listen on {address} ({key}): {reason}",
    help: "Choose another port or address, or stop what holds it.",
  },
  failed: {
    code: "NODE_FAILED",
    kind: "internal",
    message: "the node failed and stopped acknowledging: {reason}",
    help: "An acknowledgement could no longer be kept. Mend the volume, then start again.",
  },
});
