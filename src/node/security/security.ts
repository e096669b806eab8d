// What stands between a node and strangers, built from its configuration: users, keys and rules with
// their files, the chain of each listener, and reloading. A reload either takes all of it or nothing:
// until every file was read and understood, what held goes on holding.

import { type Clock, type Logger, type Random, toError } from "../../base/index.ts";
import {
  type AccessPort,
  AuthChain,
  type AuthMethod,
  allowAll,
  certificateMethod,
  type ExchangeMethod,
  everybody,
  HttpMethod,
  holdsSecretKeys,
  JwtMethod,
  type ListenerTerms,
  PasswordVerifier,
  passwordFileSlices,
  passwordMethod,
  RuleAccess,
  ruleFileSlices,
  StoredRules,
  StoredUsers,
  SwappedUsers,
  scramMethod,
  type Users,
  verifierSettingsDefault,
  withoutCredentials,
} from "../../broker/index.ts";
import type { MapShard } from "../../store/index.ts";
import type { Settings } from "../config/keys.ts";
import { chainOf } from "../config/security-rules.ts";
import { CertificateWatch } from "./certificates.ts";
import { inSlices, readLines, readSecurityFile, warnWhenOpen } from "./files.ts";
import { request } from "./http.ts";
import { openTokenKeys, type TokenKeys } from "./keys.ts";

export type SecurityComponents = {
  readonly clock: Clock;
  readonly random: Random;
  readonly logger: Logger;
  readonly meta: MapShard;
  /** Other nodes write users and rules too. */
  readonly isShared?: boolean;
  /** More enhanced authentication methods, for embedding programs. */
  readonly exchanges?: readonly ExchangeMethod[];
};

/** @throws NODE_SECURITY_FILE_UNREADABLE, BROKER_USERS_INVALID, BROKER_RULES_INVALID. */
export async function openSecurity(
  settings: Settings,
  components: SecurityComponents,
): Promise<Security> {
  const security = new Security(settings, components);
  await security.open();
  return security;
}

export class Security {
  /** Users and rules in the store. */
  readonly users: StoredUsers;
  readonly rules: StoredRules;
  readonly certificates: CertificateWatch;
  readonly access: AccessPort;
  readonly #settings: Settings;
  readonly #components: SecurityComponents;
  readonly #verifier: PasswordVerifier;
  readonly #fileUsers = new SwappedUsers(new Map());
  readonly #ruleAccess: RuleAccess | undefined;
  #tokenKeys: TokenKeys | undefined;
  #recheck: () => void = () => undefined;
  #isRecheckPlanned = false;
  /** The reload before: an older reading must not replace a newer one. It never rejects. */
  #lastReload: Promise<void> = Promise.resolve();

  constructor(settings: Settings, components: SecurityComponents) {
    const { clock, random, logger, meta } = components;
    const { sources } = settings.authorization;
    this.#settings = settings;
    this.#components = components;
    const { hashingMax } = settings.authentication;
    this.#verifier = new PasswordVerifier(
      { ...verifierSettingsDefault, hashingMax },
      clock,
      random,
    );
    this.users = new StoredUsers(meta, () => this.#recheckLater());
    this.rules = new StoredRules(meta);
    this.certificates = new CertificateWatch(clock, logger);
    const hasLoginRights = sources.includes("login");
    this.#ruleAccess = sources.length > 0 ? new RuleAccess({ hasLoginRights }) : undefined;
    this.access = this.#ruleAccess ?? allowAll;
  }

  async open(): Promise<void> {
    const { authentication } = this.#settings;
    const { clock, logger, isShared } = this.#components;
    if (isShared === true) this.#follow();
    await this.users.load();
    await this.rules.load();
    if (this.#asks("jwt")) {
      this.#tokenKeys = await openTokenKeys(authentication.jwt, clock, logger);
    }
    (await this.#readFiles())();
    await this.#warnOfOpenFiles();
  }

  /** Called when somebody may have lost the right to be connected. */
  onChange(recheck: () => void): void {
    this.#recheck = recheck;
  }

  /**
   * Reads every file again.
   * @throws the first fault, after logging it; then nothing has changed, but for certificates that are
   * good: each is taken by itself, with a reload or without one.
   */
  reload(): Promise<void> {
    const done = this.#lastReload.then(() => this.#reload());
    this.#lastReload = done.catch(() => undefined);
    return done;
  }

  async #reload(): Promise<void> {
    try {
      await this.certificates.look();
      this.certificates.demandGood();
      const useKeys = await this.#tokenKeys?.prepare();
      const useFiles = await this.#readFiles();
      useKeys?.();
      useFiles();
    } catch (error) {
      this.#components.logger.error("node.security_kept", { reason: toError(error).message });
      throw error;
    }
    this.#recheck();
    await this.#warnOfOpenFiles();
  }

  /** From here on what any node has changed counts as it is applied here. */
  #follow(): void {
    this.users.follow();
    this.rules.follow(
      () => this.#useRules(),
      (error) => {
        const { logger } = this.#components;
        logger.error("node.security_kept", { reason: toError(error).message });
      },
    );
  }

  /** Not within the apply, and once for all changes of a turn. */
  #recheckLater(): void {
    if (this.#isRecheckPlanned) return;
    this.#isRecheckPlanned = true;
    this.#components.clock.soon(() => {
      this.#isRecheckPlanned = false;
      this.#recheck();
    });
  }

  #useRules(): void {
    if (this.#settings.authorization.sources.includes("rules")) {
      this.#ruleAccess?.setRules("rules", this.rules.rules);
    }
  }

  /** Replaces the rules in the store; they hold from the next message on. */
  async replaceRules(text: string): Promise<void> {
    await this.rules.replace(text);
    this.#useRules();
  }

  termsOf(name: string): ListenerTerms {
    const listener = this.#settings.listeners[name] as Settings["listeners"][string];
    const { connectionsMax, connectRate, messageRate, byteRateBytes } = listener;
    const limits = {
      ...{ connectionsMax, connectsPerS: connectRate },
      ...{ messagesPerS: messageRate, bytesPerS: byteRateBytes },
    };
    return { name, auth: this.#chain(chainOf(this.#settings, listener)), limits };
  }

  close(): void {
    this.#tokenKeys?.close();
    this.certificates.close();
  }

  /** Reads all; the result puts it into force. */
  async #readFiles(): Promise<() => void> {
    const { authentication, authorization } = this.#settings;
    const users = this.#asks("password_file")
      ? await inSlices(passwordFileSlices(await readLines(authentication.passwordFile)))
      : undefined;
    const rules = authorization.sources.includes("rule_file")
      ? await inSlices(ruleFileSlices(await readLines(authorization.ruleFile)))
      : undefined;
    return () => {
      if (users !== undefined) this.#fileUsers.swap(users);
      if (rules !== undefined) this.#ruleAccess?.setRules("rule_file", rules);
      this.#useRules();
    };
  }

  async #warnOfOpenFiles(): Promise<void> {
    const { authentication, authorization } = this.#settings;
    const { logger } = this.#components;
    const { jwksFile } = authentication.jwt;
    if (this.#asks("password_file")) {
      await warnWhenOpen(authentication.passwordFile, "secret", logger);
    }
    if (this.#asks("jwt") && jwksFile !== "") {
      const isSecret = holdsSecretKeys(await readSecurityFile(jwksFile));
      await warnWhenOpen(jwksFile, isSecret ? "secret" : "public", logger);
    }
    if (authorization.sources.includes("rule_file")) {
      await warnWhenOpen(authorization.ruleFile, "public", logger);
    }
  }

  #asks(method: string): boolean {
    const { listeners } = this.#settings;
    return Object.values(listeners).some((one) => chainOf(this.#settings, one).includes(method));
  }

  #chain(names: readonly string[]): AuthChain {
    if (names.length === 0) return new AuthChain([everybody]);
    const isAlone = names.length === 1;
    const tables = names.map((name) => this.#usersOf(name)).filter((users) => users !== undefined);
    const { random, exchanges = [] } = this.#components;
    const scram = tables.length === 0 ? [] : [scramMethod(firstOf(tables), random)];
    return new AuthChain(
      names.map((name) => this.#method(name, isAlone)),
      [...scram, ...exchanges],
    );
  }

  #usersOf(name: string): Users | undefined {
    if (name === "password_file") return this.#fileUsers;
    return name === "users" ? this.users : undefined;
  }

  #method(name: string, isAlone: boolean): AuthMethod {
    const { authentication } = this.#settings;
    switch (name) {
      case "anonymous":
        return isAlone ? everybody : withoutCredentials;
      case "certificate":
        return certificateMethod(authentication.certificateUser);
      case "jwt":
        return this.#jwtMethod();
      case "http": {
        const { url, timeoutMs, requestsMax, bearer } = authentication.http;
        const secret = bearer === "" ? {} : { bearer };
        return new HttpMethod((body) => request({ url, timeoutMs, body, ...secret }), requestsMax);
      }
      default:
        return passwordMethod(name, this.#usersOf(name) as Users, this.#verifier);
    }
  }

  #jwtMethod(): AuthMethod {
    const { jwt } = this.#settings.authentication;
    const { secret, algorithms, issuer, audience, userClaim, leewayMs } = jwt;
    const rules = {
      // A shared secret that a public key is taken for, or the other way round, must not verify.
      algorithms: algorithms.filter((name) => name.startsWith("HS") === (secret !== "")),
      issuer: issuer === "" ? undefined : issuer,
      audience: audience === "" ? undefined : audience,
      userClaim,
      leewayS: Math.round(leewayMs / 1000),
    };
    return new JwtMethod(rules, this.#components.clock, () => this.#tokenKeys?.current);
  }
}

function firstOf(tables: readonly Users[]): Users {
  return {
    find: (user) => {
      for (const table of tables) {
        const found = table.find(user);
        if (found !== undefined) return found;
      }
      return undefined;
    },
  };
}
