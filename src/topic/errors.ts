// What can be wrong with a topic or a filter. All are the caller's to change: nothing here retries.

import { defineErrors } from "../base/index.ts";

export const topicErrors = defineErrors({
  nameInvalid: {
    code: "TOPIC_NAME_INVALID",
    kind: "invalid",
    message: "invalid topic name {topic}: {fault}",
    help: "A topic name has at least one character and no wildcard, NUL or broken surrogate.",
  },
  filterInvalid: {
    code: "TOPIC_FILTER_INVALID",
    kind: "invalid",
    message: "invalid topic filter {filter}: {fault}",
    help: "A wildcard fills its level; # stands last; $share is followed by a group and a filter.",
  },
});
