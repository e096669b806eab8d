// What `pub` and `sub` need of an MQTT client; `mqtt-connection.ts` is the one on a socket, tests
// have their own. Messages are acknowledged only after `onMessage` took them, so that what a
// durable subscriber did not print comes again.

export type Qos = 0 | 1 | 2;

export type ClientOptions = {
  readonly host: string;
  readonly port: number;
  /** 3 is MQTT 3.1, 4 is 3.1.1, 5 is 5.0. */
  readonly version: 3 | 4 | 5;
  readonly clientId: string;
  /** Clean session (3.1.1) or clean start (5). */
  readonly isClean: boolean;
  /** MQTT 5; undefined sends none. */
  readonly sessionExpiryS: number | undefined;
  readonly keepAliveS: number;
  readonly user: string | undefined;
  readonly password: string | undefined;
};

export type OutgoingMessage = {
  readonly topic: string;
  readonly payload: Uint8Array;
  readonly qos: Qos;
  readonly isRetained: boolean;
};

export type IncomingMessage = {
  readonly topic: string;
  /** Valid during the call only. */
  readonly payload: Uint8Array;
  readonly qos: Qos;
  readonly isRetained: boolean;
  readonly isDuplicate: boolean;
  /** MQTT 5, in order, repeats kept. */
  readonly userProperties: ReadonlyArray<readonly [name: string, value: string]>;
  readonly contentType: string | undefined;
  readonly responseTopic: string | undefined;
  readonly messageExpiryS: number | undefined;
  /** Commit time, of what was stored (`sub --from`). */
  readonly timeUs?: number;
};

export interface MqttClient {
  readonly isSessionPresent: boolean;
  /** Resolves when the exchange of its QoS is complete. @throws CLI_PUBLISH_REFUSED. */
  publish(message: OutgoingMessage): Promise<void>;
  /** @throws CLI_SUBSCRIBE_REFUSED when a filter is not granted. */
  subscribe(filters: readonly string[], qos: Qos): Promise<void>;
  /** Rejects with CLI_CONNECTION_LOST when the connection ends without `end()`. */
  readonly closed: Promise<void>;
  /** DISCONNECT, then closes. The session lives on as long as it was asked to. */
  end(): Promise<void>;
}

/** False leaves the message unacknowledged: the reader is done. */
export type OnMessage = (message: IncomingMessage) => boolean;

/** @throws CLI_CONNECT_FAILED, CLI_CONNECT_REFUSED. */
export type ConnectClient = (options: ClientOptions, onMessage: OnMessage) => Promise<MqttClient>;
