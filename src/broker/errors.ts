// Errors that leave the broker. Which MQTT reason codes errors become says `refusals.ts`.

import { defineErrors } from "../base/index.ts";

export const brokerErrors = defineErrors({
  closed: {
    code: "BROKER_CLOSED",
    kind: "closed",
    message: "the broker is stopping",
    help: "Connect again once it has started.",
  },
  noQuorum: {
    code: "BROKER_NO_QUORUM",
    kind: "retry",
    message: "no majority of the cluster says whether anybody wants this message",
    help: "Publish it again: here when the network has healed, or at a node of the other side.",
  },
  publishDenied: {
    code: "BROKER_PUBLISH_DENIED",
    kind: "invalid",
    message: "client {clientId} may not publish to {topic}",
    help: "Give the client the right to publish there, or make it use another topic.",
  },
  hooksInvalid: {
    code: "BROKER_HOOKS_INVALID",
    kind: "invalid",
    message: "these hooks cannot be used: {reason}",
    help: "A hook that is never asked protects nothing, so its name must be one of docs/embedding.md.",
  },
  usersInvalid: {
    code: "BROKER_USERS_INVALID",
    kind: "invalid",
    message: "password file cannot be used: {reason}",
    help: "Each line is name:hash; `flagstone user` writes them. A node that runs keeps the old ones.",
  },
  hookUnreadable: {
    code: "BROKER_HOOK_UNREADABLE",
    kind: "invalid",
    message: "the http method's answer has another form",
    help: 'It is JSON with "result": allow, deny or ignore; docs/operating/security.md has the rest.',
  },
  rulesInvalid: {
    code: "BROKER_RULES_INVALID",
    kind: "invalid",
    message: "{what} cannot be used: {reason}",
    help: "docs/operating/security.md has the grammar. A node that runs keeps the old rules.",
  },
});
