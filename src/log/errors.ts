// Every error that leaves the log, with what the caller can do about it.

import { defineErrors } from "../base/index.ts";

export const logErrors = defineErrors({
  closed: {
    code: "LOG_CLOSED",
    kind: "closed",
    message: "the log in {path} is closed",
    help: "The node is stopping; send the change again after it has started.",
  },
  failed: {
    code: "LOG_IO_FAILED",
    kind: "internal",
    message: "the log in {path} stopped after an IO error: {reason}",
    help: "The volume reported an error that is never retried. Check the device; then start again.",
  },
  settingsInvalid: {
    code: "LOG_SETTINGS_INVALID",
    kind: "invalid",
    message: "log.{name} is {value}; it must lie between {min} and {max}",
    help: "Correct the setting.",
  },
  recordTooLarge: {
    code: "LOG_RECORD_TOO_LARGE",
    kind: "limit",
    message: "a record of {sizeBytes} bytes exceeds log.recordBytesMax of {recordBytesMax} bytes",
    help: "Send smaller messages or raise the limit.",
  },
  pendingFull: {
    code: "LOG_PENDING_FULL",
    kind: "limit",
    message:
      "{pendingBytes} bytes wait for the disk; log.pendingBytesMax is {pendingBytesMax} bytes",
    help: "The disk is slower than the writers, or full. Wait and send again.",
  },
  damaged: {
    code: "LOG_DAMAGED",
    kind: "corrupt",
    message: "the log is damaged in {path} at byte {offset}: {reason}",
    help: "Restore the file, or start with log.onDamage: quarantine to keep all that is readable.",
  },
  unreadable: {
    code: "LOG_RECORD_UNREADABLE",
    kind: "corrupt",
    message: "the log cannot be read in {path} at byte {offset}: {reason}",
    help: "Bytes changed while the node ran. Restart: recovery reports the damage and goes on.",
  },
  versionUnknown: {
    code: "LOG_VERSION_UNKNOWN",
    kind: "invalid",
    message:
      "{path} has log format {version}, and this release reads up to {versionMax}: start the " +
      "release that wrote this directory, or a later one",
    help: "A directory is never changed back to an older format.",
  },
  backlogDamaged: {
    code: "LOG_BACKLOG_DAMAGED",
    kind: "corrupt",
    message: "the backlog file {path} is damaged at byte {offset}: {reason}",
    help: "Records behind this byte are lost; those before it were delivered to the reader.",
  },
});
