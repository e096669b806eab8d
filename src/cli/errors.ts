// What can go wrong on the command line itself. Exit codes are given by `exit-codes.ts`.

import { defineErrors } from "../base/index.ts";

export const cliErrors = defineErrors({
  usage: {
    code: "CLI_USAGE",
    kind: "invalid",
    message: "{reason}",
    help: "See `flagstone COMMAND --help`.",
  },
  connectFailed: {
    code: "CLI_CONNECT_FAILED",
    kind: "retry",
    message: "cannot reach {address}: {reason}",
    help: "Is a broker running there? Check host and port (-h, -p).",
  },
  connectRefused: {
    code: "CLI_CONNECT_REFUSED",
    kind: "invalid",
    message: "{address} refused the connection: {reason}",
    help: "The broker does not want this client; the reason says why.",
  },
  connectionLost: {
    code: "CLI_CONNECTION_LOST",
    kind: "retry",
    message: "connection to {address} lost: {reason}",
    help: "The broker or the network ended it. `sub` with -i and -c comes back by itself.",
  },
  disconnected: {
    code: "CLI_DISCONNECTED",
    kind: "invalid",
    message: "{address} ended the connection: {reason}",
    help: "The broker does not want this client any more, or another one took its client id.",
  },
  publishRefused: {
    code: "CLI_PUBLISH_REFUSED",
    kind: "invalid",
    message: "publish to {topic} refused: {reason}",
    help: "The broker did not take the message; it is not stored.",
  },
  subscribeRefused: {
    code: "CLI_SUBSCRIBE_REFUSED",
    kind: "invalid",
    message: "subscription to {filter} refused: {reason}",
    help: "The broker did not grant this filter.",
  },
  taskFailed: {
    code: "CLI_TASK_FAILED",
    kind: "invalid",
    message: "{task} did not end well: {reason}",
    help: "`flagstone tasks show TASK` has what it found.",
  },
  replayOverflow: {
    code: "CLI_REPLAY_OVERFLOW",
    kind: "limit",
    message: "more than {max} messages, or 64 MiB, came while the past was printed",
    help: "Ask for a later --from or a narrower filter, or use `flagstone export`.",
  },
  timedOut: {
    code: "CLI_TIMED_OUT",
    kind: "retry",
    message: "timed out after {seconds} s",
    help: "Raise -W, or leave it out to wait without end.",
  },
  unwritableFile: {
    code: "CLI_FILE_UNWRITABLE",
    kind: "invalid",
    message: 'cannot write "{path}": {reason}',
    help: "Check owner and mode of the folder; nothing has changed.",
  },
  unreadableFile: {
    code: "CLI_FILE_UNREADABLE",
    kind: "invalid",
    message: 'cannot read "{path}": {reason}',
    help: "Check path, owner and mode of the file.",
  },
  unsettled: {
    code: "CLI_CLUSTER_UNSETTLED",
    kind: "retry",
    message: "after {waitS} s not every active node votes in every group",
    help: "`flagstone cluster status` shows who is joining, leaving or away. It goes on by itself.",
  },
});
