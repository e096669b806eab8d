// The network of a scripted conversation: one queue of messages in the order of sending. Nothing
// moves unless the script says so; links that are cut lose what is on them and what is sent.

import type { MessageType, NodeId } from "../core/types.ts";
import type { Parcel } from "./member.ts";

export type Link = { readonly from: NodeId; readonly to: NodeId };

/** Which messages a command means; an absent field means any. */
export type Selection = {
  readonly link?: Link;
  readonly type?: MessageType;
  readonly count?: number;
};

export class ScriptNetwork {
  #queue: Parcel[] = [];
  readonly #cuts = new Set<string>();

  send(parcel: Parcel): void {
    if (!this.isCut(parcel.message)) this.#queue.push(parcel);
  }

  isCut(link: Link): boolean {
    return this.#cuts.has(linkName(link));
  }

  /** Takes the selected messages off the queue, in their order. */
  take(selection: Selection): Parcel[] {
    const taken = this.select(selection);
    const gone = new Set(taken);
    this.#queue = this.#queue.filter((parcel) => !gone.has(parcel));
    return taken;
  }

  select(selection: Selection): Parcel[] {
    const { link, type, count } = selection;
    const fits = ({ message }: Parcel): boolean =>
      (link === undefined || (message.from === link.from && message.to === link.to)) &&
      (type === undefined || message.type === type);
    return this.#queue.filter(fits).slice(0, count);
  }

  /** Takes everything under way among `nodes`. */
  takeAmong(nodes: ReadonlySet<NodeId>): Parcel[] {
    const among = ({ message }: Parcel): boolean =>
      nodes.has(message.from) && nodes.has(message.to);
    const taken = this.#queue.filter(among);
    this.#queue = this.#queue.filter((parcel) => !among(parcel));
    return taken;
  }

  cut(links: readonly Link[]): void {
    for (const link of links) {
      this.#cuts.add(linkName(link));
      this.take({ link });
    }
  }

  heal(links: readonly Link[]): void {
    for (const link of links) this.#cuts.delete(linkName(link));
  }

  healAll(): void {
    this.#cuts.clear();
  }
}

function linkName(link: Link): string {
  return `${link.from}->${link.to}`;
}
