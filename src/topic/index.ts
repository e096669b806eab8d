// The face of the topic room.
export * from "./errors.ts";
export {
  covers,
  filterTextMatches,
  formatSubscriptionFilter,
  intersects,
  matches,
  parseSubscriptionFilter,
  parseTopicFilter,
  type SubscriptionFilter,
  subscriptionFilterFault,
  type TopicFilter,
  topicAsFilter,
  topicFilterFault,
} from "./filter.ts";
export { TopicIndex } from "./topic-index.ts";
export { FilterTrie, type Visit } from "./trie.ts";
export {
  hasWildcard,
  isDollarTopic,
  parseTopicName,
  rememberedTopicMax,
  splitTopic,
  type TopicFault,
  type TopicLimits,
  topicBytesMax,
  topicLimitsDefault,
  topicNameFault,
} from "./words.ts";
