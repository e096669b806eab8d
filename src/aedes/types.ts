// What this room knows of Aedes 1.2: the shapes of its packets and clients, as far as they are kept
// or looked at. Structural, so that Aedes itself stays an optional peer: nothing of it is imported.

/** A packet as Aedes hands it over. Fields that are not named here are kept only where it says so. */
export type AedesPacket = {
  cmd?: string;
  topic?: string;
  payload?: Uint8Array | string;
  qos?: 0 | 1 | 2;
  retain?: boolean;
  dup?: boolean;
  messageId?: number | undefined;
  /** The broker that took the message, and its count of messages: together the message's name. */
  brokerId?: string | undefined;
  brokerCounter?: number;
  clientId?: string;
  nl?: boolean;
  properties?: Readonly<Record<string, unknown>>;
  /** Milliseconds since 1970. */
  messageExpiry?: number;
};

export type AedesClient = { readonly id: string; readonly brokerId?: string | undefined };

export type AedesSubscription = {
  topic: string;
  qos: 0 | 1 | 2;
  rh?: number | undefined;
  rap?: boolean | undefined;
  nl?: boolean | undefined;
  subscriptionIdentifier?: number | undefined;
};

/** A subscription of a client that may be away, as `subscriptionsByTopic` finds it. */
export type AedesMatch = {
  clientId: string;
  topic: string;
  qos: 0 | 1 | 2;
  rh?: number | undefined;
  rap?: boolean | undefined;
  nl?: boolean | undefined;
};

export type AuthorizePublish = (
  client: AedesClient | null,
  packet: AedesPacket,
  done: (error?: Error | null) => void,
) => void;

/** The Aedes that a persistence serves. */
export type AedesBroker = {
  id: string;
  counter?: number;
  authorizePublish?: AuthorizePublish;
};
