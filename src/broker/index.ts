// The face of the broker room.
export { type AccessAction, type AccessPort, allowAll, type Client } from "./access.ts";
export { RuleAccess } from "./acl/rule-access.ts";
export { parseRuleFile, type RuleSet, ruleFileSlices } from "./acl/rule-file.ts";
export { type Grant, parseGrants } from "./acl/rules.ts";
export { StoredRules } from "./acl/stored-rules.ts";
export {
  AuthChain,
  type CertificateUser,
  certificateMethod,
  everybody,
  withoutCredentials,
} from "./auth/chain.ts";
export { HttpMethod } from "./auth/http-method.ts";
export {
  holdsSecretKeys,
  type JwtKeys,
  JwtMethod,
  type JwtRules,
  keysOfJwks,
  keysOfSecret,
  RotatingKeys,
} from "./auth/jwt.ts";
export {
  parsePasswordFile,
  passwordFileSlices,
  type UserTable,
  userNameFault,
} from "./auth/password-file.ts";
export { hashForScram, hashPassword, parsePasswordHash } from "./auth/password-hash.ts";
export { passwordMethod, SwappedUsers, type Users } from "./auth/password-method.ts";
export { scramMethod } from "./auth/scram.ts";
export { type StoredUser, StoredUsers } from "./auth/stored-users.ts";
export * from "./auth/types.ts";
export { PasswordVerifier, verifierSettingsDefault } from "./auth/verifier.ts";
export { Broker, type BrokerComponents, createBroker, type SessionPorts } from "./broker.ts";
export type { ClientDirectory, ClientPage, ClientView, LivePage } from "./clients.ts";
export { type BrokerCounters, createBrokerCounters } from "./counters.ts";
export { brokerErrors } from "./errors.ts";
export type * from "./hooks/types.ts";
export type { DeviceProfile } from "./limits/devices.ts";
export {
  type ListenerLimits,
  type ListenerTerms,
  listenerLimitsDefault,
} from "./listener-terms.ts";
export { type BrokerSettings, brokerSettingsDefault } from "./settings.ts";
export type { Slices } from "./slices.ts";
export {
  connectionChannelName,
  messageChannelName,
  Tap,
  type TapEvent,
  type TapListener,
} from "./tap.ts";
