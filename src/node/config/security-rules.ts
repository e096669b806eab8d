// Rules between the keys of listeners, authentication and authorisation. The strictest of them: what
// other machines can reach is not served without a word on who may enter.

import { isIpv4, plainIpv6 } from "../../base/index.ts";
import { quote } from "./fault.ts";
import type { Settings } from "./keys.ts";

/** A broken rule, at the path of the value that somebody wrote. */
export type Report = (path: string, message: string) => void;

type ListenerSettings = Settings["listeners"][string];

const methods = ["certificate", "jwt", "password_file", "users", "http", "anonymous"];
const sources = ["rule_file", "rules", "login"];

export function isLoopback(host: string): boolean {
  return host === "localhost" || host === "::1" || (host.startsWith("127.") && isIpv4(host));
}

/** The methods that a listener asks; empty: only what is safe without any. */
export function chainOf(settings: Settings, listener: ListenerSettings): readonly string[] {
  return listener.authentication.length > 0
    ? listener.authentication
    : settings.authentication.chain;
}

export function checkSecurity(settings: Settings, report: Report): void {
  checkAddresses(settings, report);
  for (const [name, listener] of Object.entries(settings.listeners)) {
    checkListener(settings, name, listener, report);
  }
  checkChain(settings, settings.authentication.chain, "authentication.chain", report);
  checkAuthorization(settings, report);
}

function checkAddresses(settings: Settings, report: Report): void {
  const takenBy = new Map<string, string>();
  for (const [name, { type, host, port, path }] of Object.entries(settings.listeners)) {
    if (type !== "unix" && port === 0) continue;
    const key = `listeners.${name}.${type === "unix" ? "path" : "port"}`;
    const address = type === "unix" ? path : `${host}:${port}`;
    const owner = takenBy.get(address);
    if (owner === undefined) takenBy.set(address, key);
    else report(key, `${address} is taken by ${owner} already`);
  }
}

function checkListener(
  settings: Settings,
  name: string,
  listener: ListenerSettings,
  report: Report,
): void {
  const { type, host, path, tls, proxyFrom, authentication } = listener;
  const at = (key: string): string => `listeners.${name}.${key}`;
  if (type === "unix" && path === "/mqtt") {
    report(at("path"), "is missing: a unix listener needs the path of its socket");
  }
  if ((type === "ws" || type === "wss") && !path.startsWith("/")) {
    report(at("path"), `${quote(path)} does not begin with /`);
  }
  if (type === "tls" || type === "wss") {
    for (const key of ["cert", "key"] as const) {
      if (tls[key] === "") report(at(`tls.${key}`), `is missing: a ${type} listener needs both`);
    }
    if (tls.clientCertificate !== "none" && tls.clientCa === "") {
      report(at("tls.clientCa"), "is missing: against what are clients' certificates checked?");
    }
  }
  for (const text of proxyFrom) {
    if (networkOf(text) !== undefined) continue;
    report(at("proxyFrom"), `${quote(text)} is no address and no network such as 10.1.0.0/16`);
  }
  checkChain(settings, authentication, at("authentication"), report);
  const isOpen = type !== "unix" && !isLoopback(host);
  if (isOpen && chainOf(settings, listener).length === 0) {
    const consent = 'write "anonymous" there if everybody may';
    const message = `${host} can be reached by other machines, and nothing says who may enter`;
    report(at("host"), `${message}: set authentication.chain, or ${consent}`);
  }
}

function checkChain(
  settings: Settings,
  chain: readonly string[],
  path: string,
  report: Report,
): void {
  const { passwordFile, jwt, http } = settings.authentication;
  const needs: Readonly<Record<string, string | undefined>> = {
    password_file: passwordFile === "" ? "authentication.passwordFile" : undefined,
    jwt: jwtFault(jwt),
    http: http.url === "" ? "authentication.http.url" : undefined,
  };
  for (const [index, method] of chain.entries()) {
    if (!methods.includes(method)) {
      report(path, `${quote(method)} is no method; there are ${methods.join(", ")}`);
    } else if (chain.indexOf(method) < index) {
      report(path, `${method} stands there twice`);
    } else if (needs[method] !== undefined) {
      report(path, `${method} needs ${needs[method]}`);
    }
  }
  const anonymousAt = chain.indexOf("anonymous");
  if (anonymousAt >= 0 && anonymousAt < chain.length - 1) {
    report(path, "anonymous comes last: nobody behind it would be asked");
  }
}

function jwtFault({ jwksUrl, jwksFile, secret }: Settings["authentication"]["jwt"]) {
  const given = [jwksUrl, jwksFile, secret].filter((text) => text !== "").length;
  if (given === 1) return undefined;
  const names = "authentication.jwt.jwksUrl, jwksFile or secret";
  return given === 0 ? names : `only one of ${names}`;
}

function checkAuthorization({ authorization }: Settings, report: Report): void {
  for (const source of authorization.sources) {
    if (!sources.includes(source)) {
      const message = `${quote(source)} is no source; there are ${sources.join(", ")}`;
      report("authorization.sources", message);
    }
  }
  if (authorization.sources.includes("rule_file") && authorization.ruleFile === "") {
    report("authorization.ruleFile", "is missing: authorization.sources names rule_file");
  }
}

export type NetworkRange = { readonly address: string; readonly prefix: number };

/** `10.0.0.7`, `10.1.0.0/16`, `2001:db8::/32`. */
export function networkOf(text: string): NetworkRange | undefined {
  const slash = text.indexOf("/");
  const address = slash < 0 ? text : text.slice(0, slash);
  const bits = isIpv4(address) ? 32 : plainIpv6(address) === undefined ? 0 : 128;
  const prefixText = slash < 0 ? `${bits}` : text.slice(slash + 1);
  const prefix = /^(0|[1-9]\d{0,2})$/.test(prefixText) ? Number(prefixText) : bits + 1;
  return bits > 0 && prefix <= bits ? { address, prefix } : undefined;
}
