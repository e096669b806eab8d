// The listeners of the settings, bound one after the other; all or none. What is done with an
// accepted connection is the broker's matter.

import { promises as fs } from "node:fs";
import net from "node:net";
import {
  Closer,
  type ListenAddress,
  type Listener,
  type ListenOptions,
  plainAddress,
  type TlsMaterial,
  toError,
} from "../base/index.ts";
import type { BoundListener } from "./assemble.ts";
import { address } from "./banner.ts";
import type { Settings } from "./config/keys.ts";
import { chainOf, networkOf } from "./config/security-rules.ts";
import { nodeErrors } from "./errors.ts";
import { type CertificateWatch, checkedExpiryMs, readMaterial } from "./security/certificates.ts";

type ListenerSettings = Settings["listeners"][string];

export type ListenerParts = {
  readonly listen: (
    name: string,
    address: ListenAddress,
    options: ListenOptions,
  ) => Promise<Listener>;
  readonly certificates: CertificateWatch;
};

export type OpenListeners = {
  readonly bound: readonly BoundListener[];
  /** Stops accepting; connections live on. */
  close(): Promise<void>;
};

/** @throws NODE_LISTEN_FAILED with the address; listeners bound before it are closed again. */
export async function openListeners(
  settings: Settings,
  parts: ListenerParts,
): Promise<OpenListeners> {
  const closer = new Closer();
  const bound: BoundListener[] = [];
  for (const [name, listener] of Object.entries(settings.listeners)) {
    try {
      bound.push(await openListener(settings, name, { ...parts, closer }));
    } catch (error) {
      await closer.close();
      const { type, host, port, path } = listener;
      const at = type === "unix" ? path : address(host, port);
      const reason = toError(error).message;
      throw nodeErrors.listenFailed({ key: `listeners.${name}`, address: at, reason }, error);
    }
  }
  return { bound, close: () => closer.close() };
}

/** The group may connect; who is in it is the operator's choice. */
const socketMode = 0o660;

async function openListener(
  settings: Settings,
  name: string,
  { listen, certificates, closer }: ListenerParts & { readonly closer: Closer },
): Promise<BoundListener> {
  const own = settings.listeners[name] as ListenerSettings;
  const { type, host, port, path, tls } = own;
  const material = type === "tls" || type === "wss" ? await readMaterial(tls) : undefined;
  // Before it listens: TLS says what is wrong, but not of which file.
  if (material !== undefined) checkedExpiryMs(tls, material);
  const at = type === "unix" ? { path } : { host, port };
  const listener = closer.own(await listen(name, at, optionsOf(settings, own, material)));
  if (type === "unix") await fs.chmod(path, socketMode);
  if (material !== undefined) {
    await certificates.watch(name, tls, material, (next) => listener.setTls?.(next));
  }
  const real = "port" in listener.address ? listener.address.port : 0;
  const authentication = chainOf(settings, own);
  const asked = authentication.length === 0 ? ["anonymous"] : authentication;
  const shared = { name, type, authentication: asked };
  if (type === "unix") return { ...shared, host: "", port: 0, path };
  return { ...shared, host, port: real };
}

/** A message of WebSocket may hold the largest packet and others before it. */
const messageSpareBytes = 1024 * 1024;
const proxyHeadersMax = 1000;

function optionsOf(
  settings: Settings,
  own: ListenerSettings,
  material: TlsMaterial | undefined,
): ListenOptions {
  const { mqtt } = settings;
  const { type, path, origins, proxyFrom, tls } = own;
  const chain = chainOf(settings, own);
  const isWebSocket = type === "ws" || type === "wss";
  return {
    ...(proxyFrom.length > 0 && {
      proxy: {
        trusts: trustOf(proxyFrom),
        headerWaitMs: mqtt.preAuthTimeMs,
        waitingMax: proxyHeadersMax,
      },
    }),
    ...(material !== undefined && {
      tls: {
        material,
        versionMin: tls.versionMin === "1.3" ? "TLSv1.3" : "TLSv1.2",
        clientCertificate: tls.clientCertificate,
      },
    }),
    ...(isWebSocket && {
      webSocket: {
        path,
        origins,
        isOpen: chain.length === 0 || chain.includes("anonymous"),
        messageBytesMax: mqtt.maxPacketSizeBytes + messageSpareBytes,
        strangerBytesMax: 2 * mqtt.preAuthBytes,
      },
    }),
  };
}

function trustOf(texts: readonly string[]): (host: string) => boolean {
  const list = new net.BlockList();
  for (const text of texts) {
    const range = networkOf(text);
    if (range === undefined) continue; // checked with the configuration
    list.addSubnet(range.address, range.prefix, net.isIPv4(range.address) ? "ipv4" : "ipv6");
  }
  return (host) => {
    const plain = plainAddress(host);
    return list.check(plain, net.isIPv4(plain) ? "ipv4" : "ipv6");
  };
}
